"""What a step's operations commit is what the plain-torch reference does, and that equals the definition."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from heptagram_kernels import reference
from heptagram_kernels.bitmask import VerifyGreedy, pack, unpack
from heptagram_kernels.layout import ROWS
from heptagram_kernels.ops import NO_CHOICE, load_ops

OPS = load_ops("cpu")


@dataclass
class Case:
    logits: Tensor  # [B, 8, V]
    token_ids: Tensor  # [B, 8]
    draft_counts: Tensor  # [B]
    mask_pool: Tensor  # [P, W]
    mask_rows: Tensor  # [B, 8]

    def run(self, verify: VerifyGreedy) -> tuple[list[list[int]], list[int]]:
        verified, accepted = torch.full_like(self.token_ids, 99), torch.full_like(self.draft_counts, 99)
        verify(
            logits=self.logits,
            token_ids=self.token_ids,
            draft_counts=self.draft_counts,
            mask_pool=self.mask_pool,
            mask_rows=self.mask_rows,
            out_verified=verified,
            out_accepted=accepted,
        )
        return verified.tolist(), accepted.tolist()


def by_operations(
    *,
    logits: Tensor,
    token_ids: Tensor,
    draft_counts: Tensor,
    mask_pool: Tensor,
    mask_rows: Tensor,
    out_verified: Tensor,
    out_accepted: Tensor,
) -> None:
    """The same by the operations that a step is made of; what it commits is all that they say."""
    dead = torch.arange(ROWS) > draft_counts.unsqueeze(1)
    OPS.masked_argmax(
        logits=logits.flatten(0, 1),
        mask_pool=mask_pool,
        mask_rows=mask_rows.masked_fill(dead, -1).flatten(),
        real_tokens=logits.shape[2],
        out=out_verified.flatten(),
    )
    counts, finished = torch.empty_like(draft_counts), torch.empty_like(draft_counts)
    OPS.verify_chain(
        chosen=out_verified,
        token_ids=token_ids,
        draft_counts=draft_counts,
        room=torch.full_like(draft_counts, ROWS + 1),
        stop_ids=draft_counts[:0],
        out_tokens=out_verified,
        out_counts=counts,
        out_finished=finished,
    )
    out_accepted.copy_(counts - 1 + (finished == NO_CHOICE).long())


def committed(outcome: tuple[list[list[int]], list[int]]) -> list[list[int]]:
    return [tokens[: count + 1] for tokens, count in zip(*outcome, strict=True)]


def defined(case: Case) -> tuple[list[list[int]], list[int]]:
    """The definition, one number at a time in Python."""
    width = case.logits.shape[2]
    verified, accepted = [], []
    for sequence, drafts in enumerate(case.draft_counts.tolist()):
        row_tokens = [0] * 8
        for row in range(drafts + 1):
            allowed = unpack(case.mask_pool[case.mask_rows[sequence, row]].numpy(), width)
            values = case.logits[sequence, row].float().tolist()
            live = [(value, token) for token, value in enumerate(values) if allowed[token]]
            row_tokens[row] = -1
            if live and not any(math.isnan(value) for value, _ in live):
                best = max(value for value, _ in live)
                if best > -math.inf:
                    row_tokens[row] = min(token for value, token in live if value == best)
        count = 0
        while count < drafts and case.token_ids[sequence, count + 1] == row_tokens[count]:
            count += 1
        verified.append(row_tokens)
        accepted.append(count)
    return verified, accepted


VALUES = [-math.inf, -3.0, -1e-30, -0.0, 0.0, 1e-30, 1.0, 1.0, 2.0, 3e38, math.inf]
BITS = {"nan": 0x7FC00000, "-nan": 0xFFC00000, "snan": 0x7FA00000}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Few different values, so that ties are common; every density of masks; NaN of both signs; likely drafts."""
    batch, width = draw(st.integers(1, 3)), draw(st.sampled_from([1, 31, 32, 33, 70, 600, 1056]))
    dtype = draw(st.sampled_from([torch.bfloat16, torch.float32]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = np.array(draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=5)), dtype=np.float32)
    logits = values[random.integers(len(values), size=(batch, 8, width))]
    for name in draw(st.lists(st.sampled_from(sorted(BITS)), max_size=2)):
        place = random.integers(batch), random.integers(8), random.integers(width)
        logits.view(np.uint32)[place] = BITS[name]
    density = draw(st.sampled_from([0.0, 1 / width, 0.01, 0.5, 0.99, 1.0]))
    rows = [pack(random.random(width) < density) for _ in range(4)]
    pool = np.stack([pack(np.ones(width, dtype=np.bool_)), *rows, junk_behind(rows[0], width)])
    case = Case(
        logits=torch.from_numpy(logits).to(dtype),
        token_ids=torch.zeros((batch, 8), dtype=torch.int64),
        draft_counts=torch.from_numpy(random.integers(0, 8, size=batch)),
        mask_pool=torch.from_numpy(pool),
        mask_rows=torch.from_numpy(random.integers(0, len(pool), size=(batch, 8))),
    )
    likely = torch.tensor(defined(case)[0])[:, :-1]
    wrong = torch.from_numpy(random.random((batch, 7)) < draw(st.sampled_from([0.0, 0.2])))
    case.token_ids[:, 1:] = torch.where(wrong, 0, likely.clamp(min=0))
    return case


def junk_behind(row: NDArray[np.int32], width: int) -> NDArray[np.int32]:
    """The same mask with set bits behind the width, which must be ignored."""
    words = row.copy()
    if width % 32:
        words[-1] |= np.int32(-1) << np.int32(width % 32)
    return words


@settings(max_examples=100, deadline=None)
@given(cases())
def test_reference_is_the_definition(case: Case) -> None:
    assert case.run(reference.verify_greedy) == defined(case)


@settings(max_examples=150, deadline=None)
@given(case=cases())
def test_the_operations_of_a_step_commit_what_the_reference_does(case: Case) -> None:
    assert committed(case.run(by_operations)) == committed(case.run(reference.verify_greedy))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("allowed", [5, 3000, 49000])
def test_real_width(dtype: torch.dtype, allowed: int) -> None:
    """SmolLM2's width, with the best token of each row forbidden so that masks really decide."""
    random = np.random.default_rng(0)
    logits = torch.from_numpy(random.normal(size=(2, 8, 49152)).astype(np.float32)).to(dtype)
    masks = np.zeros((17, 49152), dtype=np.bool_)
    masks[0] = True
    for row in range(16):
        masks[row + 1, random.choice(49152, allowed, replace=False)] = True
        masks[row + 1, logits.view(16, -1)[row].argmax()] = False
    case = Case(
        logits=logits,
        token_ids=torch.zeros((2, 8), dtype=torch.int64),
        draft_counts=torch.tensor([7, 3]),
        mask_pool=torch.from_numpy(np.stack([pack(mask) for mask in masks])),
        mask_rows=torch.arange(1, 17).view(2, 8),
    )
    assert committed(case.run(by_operations)) == committed(case.run(reference.verify_greedy))


@given(st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_pack_round_trip(width: int, seed: int) -> None:
    mask = np.random.default_rng(seed).random(width) < 0.5
    assert np.array_equal(unpack(pack(mask), width), mask)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("logits", torch.zeros(2, 8, 40, dtype=torch.float16), "logits: got torch.float16"),
        ("logits", torch.zeros(8, 40), r"logits: got \[8, 40\], need \[B, 8, V\]"),
        ("token_ids", torch.zeros(2, 7, dtype=torch.int64), "token_ids: got"),
        ("mask_pool", torch.zeros(3, 1, dtype=torch.int32), "mask_pool: got"),
        ("mask_pool", torch.zeros(3, 2, dtype=torch.int64), "mask_pool: got"),
        ("mask_rows", torch.zeros(2, 8, dtype=torch.int64, device="meta"), "move all of them to one device"),
    ],
)
def test_wrong_arguments_are_named(name: str, value: Tensor, message: str) -> None:
    case = Case(
        logits=torch.zeros(2, 8, 40),
        token_ids=torch.zeros((2, 8), dtype=torch.int64),
        draft_counts=torch.zeros(2, dtype=torch.int64),
        mask_pool=torch.zeros((3, 2), dtype=torch.int32),
        mask_rows=torch.zeros((2, 8), dtype=torch.int64),
    )
    setattr(case, name, value)
    with pytest.raises(ValueError, match=message):
        case.run(reference.verify_greedy)
