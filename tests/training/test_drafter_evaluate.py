"""Accepted tokens and calibration, on blocks that are written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heptagram_backend.training.drafter_evaluate import Judged, accepted, calibration_error, fitted


def _judged(rows: list[str]) -> Judged:
    """Of each anchor a word: ``y`` right, ``n`` wrong, ``-`` behind the answer."""
    right = torch.tensor([[letter == "y" for letter in row] for row in rows])
    counts = torch.tensor([[letter != "-" for letter in row] for row in rows])
    return Judged(right, counts, None)


def test_steps_go_on_behind_the_bonus_token() -> None:
    """Five tokens: two drafts and a bonus token, then one draft and the last one."""
    told = accepted([_judged(["yyn", "nnn", "nnn", "yn-", "y--"])])
    assert told.tokens_per_step == pytest.approx(5 / 2)
    assert told.by_position == pytest.approx((1.0, 0.5, 0.0))
    assert str(told) == "2.50 tokens a step over 1 answers (by position 1. .50 .00)"


def test_a_step_does_not_go_beyond_its_answer() -> None:
    assert accepted([_judged(["yyy", "yy-", "y--"])]).tokens_per_step == 3
    assert accepted([_judged(["nnn", "nn-", "n--"]), _judged(["n--"])]).tokens_per_step == 1


def test_calibration_error_is_the_distance_from_what_was_seen() -> None:
    chances = torch.tensor([0.85, 0.85, 0.85, 0.85, 0.15, 0.15])
    right = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    assert calibration_error(chances, right) == pytest.approx((4 * 0.1 + 2 * 0.15) / 6, abs=1e-6)


def _sure(scale: float, shift: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(20_000, generator=generator, dtype=torch.float64)
    chances = torch.sigmoid(scale * logits + shift)
    return logits, (torch.rand(20_000, generator=generator, dtype=torch.float64) < chances).double()


def test_scale_and_shift_are_found() -> None:
    logits, right = _sure(0.5, -1.0)
    scale, shift = fitted(logits, right)
    assert scale == pytest.approx(0.5, abs=0.06)
    assert shift == pytest.approx(-1.0, abs=0.06)
    assert calibration_error(torch.sigmoid(scale * logits + shift), right) < 0.02
