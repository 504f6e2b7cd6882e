"""A workspace grows only before it is sealed, and never by half."""

from __future__ import annotations

import pytest
import torch

from heptagram_kernels.devices import load_device
from heptagram_kernels.graph import EagerGraph
from heptagram_kernels.workspace import Declaration, Workspace


def test_reserve_take_seal() -> None:
    workspace = Workspace()
    workspace.reserve([Declaration("a", torch.int64, (2, 3)), Declaration("b", torch.bfloat16, (4,))])
    workspace.seal()
    assert workspace.take("a").shape == (2, 3)
    assert workspace.take("a") is workspace.take("a")
    assert not workspace.take("b").any()
    assert workspace.nbytes == 2 * 3 * 8 + 4 * 2
    with pytest.raises(ValueError, match="sealed; reserve c before warm-up"):
        workspace.reserve([Declaration("c", torch.int64, (1,))])


@pytest.mark.parametrize(
    "bad", [Declaration("a", torch.int64, (1,)), Declaration("c", torch.int64, (0,)), Declaration("b", torch.int64, ())]
)
def test_a_refused_reservation_changes_nothing(bad: Declaration) -> None:
    workspace = Workspace()
    workspace.reserve([Declaration("a", torch.int64, (1,))])
    with pytest.raises(ValueError, match="workspace tensor"):
        workspace.reserve([Declaration("b", torch.int64, (1,)), bad])
    assert workspace.nbytes == 8
    with pytest.raises(KeyError, match="declare it before"):
        workspace.take("b")


def test_eager_graph_replays_what_was_captured() -> None:
    graph, runs = EagerGraph(), list[int]()
    with pytest.raises(ValueError, match="call capture"):
        graph.replay()
    graph.capture(lambda: runs.append(1))
    graph.replay()
    graph.replay()
    assert len(runs) == 2
    with pytest.raises(ValueError, match="holds a step already"):
        graph.capture(lambda: None)


def test_unknown_device_is_named_with_those_that_are_there() -> None:
    with pytest.raises(ValueError, match=r"device 'tpu': not supported; choose one of cpu"):
        load_device("tpu")
