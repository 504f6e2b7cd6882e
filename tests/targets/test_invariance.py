"""One answer: a sequence's logits depend, bit for bit, on its own tokens alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from heptagram_backend.targets.base import PromptRows
from heptagram_backend.targets.invariance import row_invariance
from heptagram_backend.targets.transformers_target import TransformersTarget
from tests.targets.tiny import FAMILIES, save_tiny


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("family", FAMILIES)
def test_tiny_models_are_invariant(tmp_path: Path, family: str, dtype: str) -> None:
    checkpoint = save_tiny(tmp_path, family, max_position_embeddings=4096)
    target = TransformersTarget(checkpoint, dtype=dtype, num_slots=8, max_model_len=2048)
    report = row_invariance(target)
    assert report.passed, report
    assert len(report.checks) == 8


class Leaky(TransformersTarget):
    """A wrong target: each sequence's logits depend a little on what they should not."""

    by = "batch"

    def mixed(self, token_ids: Tensor, positions: Tensor, slots: Tensor, prompts: Sequence[PromptRows]) -> Tensor:
        logits = super().mixed(token_ids, positions, slots, prompts)
        match self.by:
            case "batch":
                return logits * (1 + len(slots) * 1e-6)
            case "prompts":
                return logits * (1 + len(prompts) * 1e-6)
            case "table":
                return logits + self._cache._blocks[int(slots[0])][0] * 1e-6
        return logits + torch.arange(8).view(1, 8, 1) * 1e-6


@pytest.mark.parametrize(
    ("by", "failing"),
    [
        ("batch", {"company", "place"}),
        ("row", {"row"}),
        ("prompts", {"mixed"}),
        ("table", {"blocks", "company", "place"}),
    ],
)
def test_a_dependence_is_found_and_named(tmp_path: Path, by: str, failing: set[str]) -> None:
    target: Any = Leaky(save_tiny(tmp_path, "llama"), dtype="float32", num_slots=3, max_model_len=64)
    target.by = by
    report = row_invariance(target)
    assert {check.name for check in report.checks if not check.passed} == failing
    assert f"{sorted(failing)[0]} differs by" in str(report)


def test_a_context_too_short_for_the_test_is_refused(tmp_path: Path) -> None:
    target = TransformersTarget(save_tiny(tmp_path, "llama"), dtype="float32", num_slots=1, max_model_len=40)
    with pytest.raises(ValueError, match="max_model_len: 40; the self-test needs 45"):
        row_invariance(target)
