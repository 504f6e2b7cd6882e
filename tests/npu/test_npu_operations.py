"""What the operations for Ascend compute, shown on the CPU: the same torch code, which no NPU has run."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from heptagram_kernels import npu_verify, reference_sampling
from heptagram_kernels.npu_attention import FusedAttention, MaskedAttention
from heptagram_kernels.ops import load_ops
from tests.kernels import ops_cases
from tests.kernels.sampling_cases import SampledCase
from tests.kernels.test_token_logprobs import Case as LogprobsCase
from tests.kernels.test_token_logprobs import cases as logprobs_cases
from tests.kernels.test_verify_sampled import cases as sampled_cases


@pytest.mark.parametrize("name", ops_cases.NAMES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_operations_equal_the_reference_on_the_cpu(name: str, data: st.DataObject) -> None:
    data.draw(ops_cases.cases(name)).check(load_ops("npu"), load_ops("reference"))


@settings(max_examples=60, deadline=None)
@given(case=sampled_cases())
def test_verification_that_samples_takes_its_sequences_to_the_host_and_back(case: SampledCase) -> None:
    assert case.run(npu_verify.verify_sampled) == case.run(reference_sampling.verify_sampled)


@settings(max_examples=60, deadline=None)
@given(case=logprobs_cases())
def test_log_probabilities_take_their_sequences_to_the_host_and_back(case: LogprobsCase) -> None:
    ours, theirs = case.run(npu_verify.token_logprobs), case.run(reference_sampling.token_logprobs)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


B, R, H, G, D, BLOCK, CONTEXT = 2, 8, 4, 2, 8, 16, 48


def _arguments(dtype: torch.dtype) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(3)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random).to(dtype)

    return {
        "query": numbers(B, R, H, D),
        "keys": numbers(10 * BLOCK, G * D),
        "values": numbers(10 * BLOCK, G * D),
        "block_tables": torch.randperm(10, generator=random)[:9].view(3, 3),
        "slots": torch.tensor([2, 0]),
        "positions": torch.tensor([0, 33]),
    }


def _masked(**arguments: Tensor) -> Tensor:
    return MaskedAttention(context=CONTEXT, block_size=BLOCK, key_heads=G)(**arguments)


def test_masked_attention_is_torchs_over_the_keys_up_to_each_row() -> None:
    given = _arguments(torch.float32)
    answer = _masked(**given)
    for sequence in range(B):
        blocks = given["block_tables"][given["slots"][sequence]].tolist()
        lines = torch.cat([torch.arange(block * BLOCK, (block + 1) * BLOCK) for block in blocks])
        for row in range(R):
            seen = lines[: int(given["positions"][sequence]) + row + 1]
            key, value = (given[name][seen].view(-1, G, D).transpose(0, 1) for name in ("keys", "values"))
            alone = scaled_dot_product_attention(
                given["query"][sequence, row].unsqueeze(1), key, value, enable_gqa=True
            )
            torch.testing.assert_close(answer[sequence, row], alone.squeeze(1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_row_of_masked_attention_depends_on_no_key_behind_it(dtype: torch.dtype) -> None:
    given = _arguments(dtype)
    answer = _masked(**given)
    last = given["block_tables"][2, 0] * BLOCK + R - 1
    for name in ("keys", "values"):
        given[name][last:] = 7 * given[name][last:]
    later = _masked(**given)
    assert torch.equal(answer[0, : R - 1], later[0, : R - 1])
    assert not torch.equal(answer[0, R - 1], later[0, R - 1])


def test_attention_names_the_size_that_does_not_fit() -> None:
    with pytest.raises(ValueError, match="context: 40 is no multiple of the block size 16"):
        MaskedAttention(context=40, block_size=BLOCK, key_heads=G)
    with pytest.raises(ValueError, match="block_size: got 24"):
        _fused(block_size=24)
    with pytest.raises(ValueError, match="rows: got 17; fused attention takes at most 16"):
        _fused(rows=17)
    with pytest.raises(ValueError, match="positions: got 4; captured for 3 sequences"):
        _fused().set_positions([0, 1, 2, 3])


def test_lengths_for_fused_attention_count_padding_as_sequences_of_the_steps_rows() -> None:
    attention = _fused()
    assert attention.host_arguments() == {"actual_seq_lengths": [8, 16, 24], "actual_seq_lengths_kv": [8, 8, 8]}
    attention.set_positions([5, 90])
    assert attention.host_arguments() == {"actual_seq_lengths": [8, 16, 24], "actual_seq_lengths_kv": [13, 98, 8]}


def _fused(*, block_size: int = BLOCK, rows: int = R) -> FusedAttention:
    return FusedAttention(block_size=block_size, key_heads=G, batch=3, rows=rows, device=torch.device("cpu"))
