"""Weights as small integers: what they stand for, and products over them against the oracle and against each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from heptagram_backend.checkpoint import shipped_file
from heptagram_kernels import codes, cpu_vnni
from heptagram_kernels.codes import GROUP, Codes, eight_bit_blocks, eight_bits, four_bit_blocks, quantize_rows
from heptagram_kernels.cpu_vnni import CodedProduct

QUANTIZE = (eight_bits, eight_bit_blocks, four_bit_blocks)
Quantize = Callable[[Tensor], Codes]
DTYPES = (torch.float32, torch.bfloat16)
needs_vnni = pytest.mark.skipif(cpu_vnni.fault() is not None, reason=str(cpu_vnni.fault()))


def numbers(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize(("quantize", "step"), list(zip(QUANTIZE, (1 / 127, 1 / 127, 2 / 15), strict=True)))
def test_codes_lie_within_half_a_step(quantize: Quantize, step: float) -> None:
    weight = numbers(48, 96, seed=0).clamp(-1, 1)
    found = quantize(weight)
    assert (found.weight() - weight).abs().max() < 0.6 * step  # a fit may move a weight a little further


def test_equal_weights_and_none_but_zeros_are_exact() -> None:
    for weight in (torch.zeros(16, 32), torch.full((16, 32), 0.25)):
        assert torch.equal(four_bit_blocks(weight).weight(), weight)
    for quantize in QUANTIZE:
        assert torch.equal(quantize(torch.zeros(16, 32)).weight(), torch.zeros(16, 32))


def test_the_shipped_models_weights_get_the_codes_of_their_blocks_again() -> None:
    reader = GGUFReader(shipped_file("smollm2-135m-instruct"))
    tensors = [one for one in reader.tensors if one.tensor_type is GGMLQuantizationType.Q4_1]
    assert len(tensors) == 210
    for tensor in tensors[::30]:
        scales, minimums, blocks = _blocks(tensor)
        weight = (blocks * scales.unsqueeze(-1) + minimums.unsqueeze(-1)).view(blocks.shape[0], -1)
        found = four_bit_blocks(weight.bfloat16())  # as the converted checkpoint has them
        assert torch.equal(found.codes.view(blocks.shape).float(), blocks), tensor.name
        assert found.minimums is not None
        worst = (found.weight() - weight).abs().max() / weight.abs().max()
        assert worst < 2**-9, tensor.name  # half the rounding of bfloat16


def _blocks(tensor: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Scale and minimum [N, G] and codes [N, G, 32] of a Q4_1 tensor: two halves and 16 bytes a block."""
    raw = np.array(tensor.data).reshape(int(tensor.shape[1]), -1, 20)
    halves = torch.from_numpy(raw[..., :4].copy().view(np.float16)).float()
    packed = torch.from_numpy(raw[..., 4:].copy())
    return halves[..., 0], halves[..., 1], torch.cat([packed & 15, packed >> 4], dim=-1).float()


@needs_vnni
@settings(max_examples=40, deadline=None)
@given(
    quantize=st.sampled_from(QUANTIZE),
    dtype=st.sampled_from(DTYPES),
    rows=st.integers(1, 40),
    channels=st.integers(1, 70),
    groups=st.integers(1, 6),
    epilogue=st.sampled_from(["none", "silu", "times"]),
    biased=st.booleans(),
    seed=st.integers(0, 99),
)
def test_products_equal_the_oracle(
    *,
    quantize: Quantize,
    dtype: torch.dtype,
    rows: int,
    channels: int,
    groups: int,
    epilogue: str,
    biased: bool,
    seed: int,
) -> None:
    weight = quantize(numbers(channels, groups * GROUP, seed=seed))
    bias = numbers(channels, seed=seed + 1) if biased else None
    given_rows = numbers(rows, groups * GROUP, seed=seed + 2, dtype=dtype)
    other = numbers(rows, channels, seed=seed + 3, dtype=dtype)
    before = given_rows.clone()
    got = CodedProduct(weight, bias)(given_rows, epilogue=epilogue, other=other if epilogue == "times" else None)
    wanted = codes.linear(given_rows, weight, bias)
    if epilogue == "silu":
        wanted = functional.silu(wanted)
    if epilogue == "times":
        wanted = wanted * other.double()
    assert got.dtype == dtype
    assert torch.equal(given_rows, before), "an input was changed"
    size = wanted.abs().max().item()
    torch.testing.assert_close(got.double(), wanted, rtol=2**-8 if dtype == torch.bfloat16 else 1e-5, atol=3e-6 * size)


@needs_vnni
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("quantize", QUANTIZE)
def test_a_row_is_what_it_is_alone_whatever_stands_around_it_and_however_many_threads(
    quantize: Quantize, dtype: torch.dtype
) -> None:
    product = CodedProduct(quantize(numbers(3072, 576, seed=0)))
    rows = numbers(136, 576, seed=1, dtype=dtype)
    alone = torch.cat([product(row.unsqueeze(0)) for row in rows])
    threads = torch.get_num_threads()
    try:
        for team in (1, 2, 3):
            torch.set_num_threads(team)
            for first, last in ((0, 8), (3, 11), (0, 16), (5, 29), (0, 136)):
                assert torch.equal(product(rows[first:last]), alone[first:last]), (team, first, last)
    finally:
        torch.set_num_threads(threads)


@needs_vnni
@pytest.mark.parametrize("quantize", QUANTIZE)
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_stays_none_and_in_its_row(wrong: float, quantize: Quantize) -> None:
    product = CodedProduct(quantize(numbers(32, 64, seed=0)))
    rows = numbers(8, 64, seed=1)
    good = product(rows)
    rows[3, 5] = wrong
    rows[6] = 0.0
    got = product(rows)
    assert not got[3].isfinite().any()
    assert torch.equal(got[6], torch.zeros(32))
    untouched = [0, 1, 2, 4, 5, 7]
    assert torch.equal(got[untouched], good[untouched])


@needs_vnni
def test_the_largest_sums_do_not_overflow() -> None:
    weight = Codes(8, torch.full((16, 8192), -128, dtype=torch.int8), torch.ones(16, 1))
    got = CodedProduct(weight)(torch.full((8, 8192), -127.0))
    assert torch.equal(got, torch.full((8, 16), 128.0 * 127 * 8192))


@needs_vnni
def test_inputs_that_are_no_whole_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="weight: 40 inputs; must be a multiple of 32"):
        CodedProduct(eight_bits(torch.ones(16, 40)))


def test_rows_are_quantized_each_by_its_own_largest_value() -> None:
    found, scales = quantize_rows(torch.tensor([[1.0, -2.0], [0.0, 0.0], [100.0, 50.0]]))
    assert found.tolist() == [[64, -127], [0, 0], [127, 64]]
    torch.testing.assert_close(scales.squeeze(-1), torch.tensor([2.0, 0.0, 100.0]) / 127)
