"""Log probabilities: devices equal the reference, the reference equals torch's log_softmax, the best come first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heptagram_kernels import reference_sampling as reference
from heptagram_kernels.bitmask import pack
from heptagram_kernels.devices import load_device
from heptagram_kernels.sampling import TokenLogprobs

DEVICE_NAMES = ("cpu",)  # on CUDA it is the reference that runs


@dataclass
class Case:
    logits: Tensor  # [B, 8, V]
    mask_pool: Tensor  # [P, W]
    mask_rows: Tensor  # [B, 8]
    places: Tensor  # [N, 2]
    tokens: Tensor  # [N]
    top: int

    def run(self, compute: TokenLogprobs, **changes: Any) -> tuple[Tensor, Tensor, Tensor]:
        count = self.tokens.numel()
        outputs = {
            "out_chosen": torch.full((count,), 9.0, dtype=torch.float64),
            "out_ids": torch.full((count, self.top), 9),
            "out_logprobs": torch.full((count, self.top), 9.0, dtype=torch.float64),
        }
        arguments: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "top"}
        compute(**arguments | outputs | changes)
        return outputs["out_chosen"], outputs["out_ids"], outputs["out_logprobs"]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    batch, width = draw(st.integers(1, 3)), draw(st.sampled_from([5, 32, 70]))
    count, top = draw(st.integers(0, 6)), draw(st.integers(0, 20))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = random.choice([0.0, 1.0, -2.0, 5.0], size=(batch, 8, width))
    masks = random.random((4, width)) < draw(st.sampled_from([0.1, 0.6, 1.0]))
    masks[:, 1] = True
    return Case(
        logits=torch.from_numpy(values).to(draw(st.sampled_from([torch.bfloat16, torch.float32]))),
        mask_pool=torch.from_numpy(np.stack([pack(mask) for mask in masks])),
        mask_rows=torch.from_numpy(random.integers(0, 4, (batch, 8))),
        places=torch.from_numpy(np.stack([random.integers(0, batch, count), random.integers(0, 8, count)], axis=1)),
        tokens=torch.from_numpy(random.integers(0, width, count)),
        top=top,
    )


@pytest.mark.parametrize("device", DEVICE_NAMES)
@settings(max_examples=200, deadline=None)
@given(case=cases())
def test_devices_equal_the_reference(device: str, case: Case) -> None:
    ours, theirs = case.run(load_device(device).token_logprobs), case.run(reference.token_logprobs)
    assert torch.equal(ours[1], theirs[1])
    torch.testing.assert_close(ours[0], theirs[0])
    torch.testing.assert_close(ours[2], theirs[2])


@pytest.mark.parametrize("compute", [reference.token_logprobs, load_device("cpu").token_logprobs])
def test_they_are_those_of_log_softmax_over_what_is_allowed(compute: TokenLogprobs) -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 8, 50)
    allowed = np.ones((2, 50), dtype=np.bool_)
    allowed[1, 3:40] = False
    pool = torch.from_numpy(np.stack([pack(row) for row in allowed]))
    rows = torch.tensor([[0, 1, 0, 0, 0, 0, 0, 0]])
    case = Case(logits, pool, rows, torch.tensor([[0, 0], [0, 1], [0, 1]]), torch.tensor([7, 45, 7]), top=20)
    chosen, ids, logprobs = case.run(compute)
    free = logits[0, 0].double().log_softmax(-1)
    left = torch.from_numpy(allowed[1].nonzero()[0])
    masked = logits[0, 1, left].double().log_softmax(-1)
    torch.testing.assert_close(chosen[:2], torch.stack([free[7], masked[left.tolist().index(45)]]))
    assert chosen[2] == -math.inf
    torch.testing.assert_close(logprobs[0], free.topk(20).values)
    assert ids[0].tolist() == free.topk(20).indices.tolist()
    best = masked.sort(descending=True)
    assert ids[1].tolist() == [*left[best.indices].tolist(), *[-1] * 7]
    torch.testing.assert_close(logprobs[1], torch.cat([best.values, torch.full((7,), -math.inf).double()]))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("places", torch.tensor([[0, 8]]), r"places\[:, 1\]: .* must be from 0 to 7"),
        ("places", torch.tensor([[1, 0]]), r"places\[:, 0\]: .* must be from 0 to 0"),
        ("tokens", torch.tensor([40]), "tokens: .* must be from 0 to 39"),
        ("tokens", torch.tensor([0.5]), "tokens: got torch.float32"),
        ("out_chosen", torch.zeros(2), "out_chosen: got"),
        ("mask_pool", torch.zeros(1, 1, dtype=torch.int32), "mask_pool: got"),
    ],
)
def test_wrong_arguments_are_named(name: str, value: Tensor, message: str) -> None:
    case = Case(
        logits=torch.zeros(1, 8, 40),
        mask_pool=torch.full((1, 2), -1, dtype=torch.int32),
        mask_rows=torch.zeros((1, 8), dtype=torch.int64),
        places=torch.zeros((1, 2), dtype=torch.int64),
        tokens=torch.zeros(1, dtype=torch.int64),
        top=2,
    )
    with pytest.raises(ValueError, match=message):
        case.run(load_device("cpu").token_logprobs, **{name: value})
