"""A workspace grows only before it is sealed, and never by half."""

from __future__ import annotations

import pytest
import torch

from heptagram_kernels.devices import load_device
from heptagram_kernels.graph import EagerGraph
from heptagram_kernels.workspace import Declaration, Workspace, lock


def test_reserve_take_seal() -> None:
    workspace = Workspace("target")
    workspace.reserve([Declaration("a", torch.int64, (2, 3)), Declaration("b", torch.bfloat16, (4,))])
    workspace.seal()
    assert workspace.take("a").shape == (2, 3)
    assert workspace.take("a") is workspace.take("a")
    assert not workspace.take("b").any()
    assert workspace.nbytes == 2 * 3 * 8 + 4 * 2
    with pytest.raises(ValueError, match=r"the workspace of target is locked; declare c \(8 bytes\) before warm-up"):
        workspace.reserve([Declaration("c", torch.int64, (1,))])


@pytest.mark.parametrize(
    "bad", [Declaration("a", torch.int64, (1,)), Declaration("c", torch.int64, (0,)), Declaration("b", torch.int64, ())]
)
def test_a_refused_reservation_changes_nothing(bad: Declaration) -> None:
    workspace = Workspace("target")
    workspace.reserve([Declaration("a", torch.int64, (1,))])
    with pytest.raises(ValueError, match="workspace tensor"):
        workspace.reserve([Declaration("b", torch.int64, (1,)), bad])
    assert workspace.nbytes == 8
    with pytest.raises(KeyError, match="the workspace of target has no 'b'; declare it before"):
        workspace.take("b")


def test_eager_graph_replays_what_was_captured() -> None:
    graph, runs = EagerGraph(), torch.zeros(1)
    with pytest.raises(ValueError, match="call capture"):
        graph.replay()
    graph.capture(lambda: runs.add_(1))
    assert graph.replay() is runs
    graph.replay()
    assert runs.item() == 2
    with pytest.raises(ValueError, match="holds a step already"):
        graph.capture(lambda: runs)


def test_unknown_device_is_named_with_those_that_are_there() -> None:
    with pytest.raises(ValueError, match=r"device 'tpu': not supported; choose one of cpu"):
        load_device("tpu")


def test_target_and_draft_have_reservations_of_their_own() -> None:
    target, draft = Workspace("target"), Workspace("draft")
    same = [Declaration("scratch", torch.int64, (4,))]
    target.reserve(same)
    draft.reserve(same)
    target.take("scratch").fill_(1)
    assert not draft.take("scratch").any()
    lock(target)
    draft.reserve([Declaration("more", torch.int64, (2,))])
    with pytest.raises(ValueError, match=r"the workspace of target is locked; declare more \(16 bytes\)"):
        target.reserve([Declaration("more", torch.int64, (2,))])
    assert (target.nbytes, draft.nbytes) == (32, 48)


def test_live_buffers_must_not_overlap() -> None:
    target, draft = Workspace("target"), Workspace("draft")
    target.reserve([Declaration("target.keys", torch.int64, (4,)), Declaration("target.values", torch.int64, (4,))])
    draft.reserve([Declaration("draft.keys", torch.int64, (4,))])
    draft._tensors["draft.keys"] = target.take("target.values")[1:3]
    with pytest.raises(ValueError, match=r"'target.values' and 'draft.keys' share memory"):
        lock(target, draft)
    assert not target.sealed
    assert not draft.sealed
