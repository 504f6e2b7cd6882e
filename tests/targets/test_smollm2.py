"""The embedded default on our runner."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from heptagram_backend.checkpoint import resolve
from heptagram_backend.targets.invariance import row_invariance
from heptagram_backend.targets.transformers_target import TransformersTarget


@cache
def checkpoint() -> Path:
    return resolve("embedded:smollm2-135m-instruct")


@pytest.mark.server
@pytest.mark.timeout(300)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_it_makes_sense(dtype: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(checkpoint())
    target = TransformersTarget(checkpoint(), dtype=dtype, num_slots=1, max_model_len=256)
    tokens: list[int] = tokenizer("The capital of France is").input_ids
    target.prefill(slot=0, start=0, token_ids=tokens[:-1])
    for _ in range(2):
        anchor = torch.tensor([[tokens[-1], *[0] * 7]])
        logits = target.forward(anchor, torch.tensor([len(tokens) - 1]), torch.tensor([0]))
        tokens.append(int(logits[0, 0].argmax()))
    assert tokenizer.decode(tokens).endswith("The capital of France is Paris.")


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_it_is_invariant(dtype: str) -> None:
    report = row_invariance(TransformersTarget(checkpoint(), dtype=dtype, num_slots=8, max_model_len=2048))
    assert report.passed, report
