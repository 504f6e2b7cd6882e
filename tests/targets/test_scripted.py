"""The scripted target follows its script over what its cache holds, and notices rows that nobody wrote."""

from __future__ import annotations

import pytest
import torch

from heptagram_backend.targets.base import PagedTarget, PromptRows
from heptagram_backend.targets.scripted import PagedScriptedTarget, ScriptedTarget


def make() -> ScriptedTarget:
    return ScriptedTarget(lambda tokens: sum(tokens) % 50, vocab_size=50, num_slots=2, max_model_len=40)


def step(target: ScriptedTarget, slot: int, position: int, *tokens: int) -> list[int]:
    row = torch.tensor([[*tokens, *([0] * (8 - len(tokens)))]])
    chosen: list[int] = target.forward(row, torch.tensor([position]), torch.tensor([slot])).argmax(-1)[0].tolist()
    return chosen[: len(tokens)]


def test_it_follows_the_script() -> None:
    target = make()
    target.prefill(slot=1, start=0, token_ids=[1, 2, 3])
    assert step(target, 1, 3, 4, 10) == [10, 20]
    assert step(target, 1, 4, 10, 20) == [20, 40]


def test_a_rejected_row_that_is_not_rewritten_changes_the_output() -> None:
    target = make()
    assert step(target, 0, 0, 1, 30) == [1, 31]
    assert step(target, 0, 2, 1) == [32]  # the caller skipped position 1, which should hold a 1


def test_unwritten_rows_are_an_error() -> None:
    target = make()
    target.prefill(slot=0, start=0, token_ids=[1] * 8)
    with pytest.raises(ValueError, match="slot 0: row 8 is read, but was never written"):
        step(target, 0, 9, 1)
    target.prefill(slot=0, start=0, token_ids=[1])
    with pytest.raises(ValueError, match="row 1 is read"):
        step(target, 0, 8, 1)


def test_wrong_chunks_and_positions_are_refused() -> None:
    target = make()
    for start, count in ((4, 1), (0, 9), (0, 0), (40, 1)):
        with pytest.raises(ValueError, match="is not one chunk of 8"):
            target.prefill(slot=0, start=start, token_ids=[1] * count)
    with pytest.raises(ValueError, match="position 40: must be 0 to 39"):
        step(target, 0, 40, 1)


def test_a_paged_one_reads_what_its_table_lists() -> None:
    """Blocks that another sequence wrote are read as they are, and a step's rows end in the next block."""
    target = PagedScriptedTarget(
        lambda tokens: sum(tokens) % 50, vocab_size=50, num_slots=2, max_model_len=40, blocks=5
    )
    assert isinstance(target, PagedTarget)
    assert not isinstance(make(), PagedTarget)
    target.set_blocks(0, [4, 1])
    target.prefill(slot=0, start=0, token_ids=[1] * 8)
    target.set_blocks(1, [4, 2, 0])
    rows = PromptRows(1, 8, [2] * 8)
    logits = target.mixed(torch.tensor([[5, *[0] * 7]]), torch.tensor([8]), torch.tensor([0]), [rows])
    assert int(logits[0, 0].argmax()) == 13
    assert step(target, 1, 16, 3) == [27]
