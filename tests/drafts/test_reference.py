"""The draft network against DeepSpec's own: its outputs on random weights, fp32, recorded (each file's metadata has the
origin and version).

DeepSpec computes all anchors under one attention mask; ours attends to a cut context, a sequence at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from heptagram_backend.drafts.dspark.config import DSparkConfig
from heptagram_backend.drafts.dspark.loading import fit, read_weights
from heptagram_backend.drafts.dspark.network import DraftNetwork, OwnContexts
from heptagram_backend.drafts.dspark.walk import Walk, walk

DATA = Path(__file__).parents[1] / "data" / "dspark"
CASES = sorted(folder.name for folder in DATA.iterdir() if folder.is_dir())
TOLERANCE = 1e-4


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[DraftNetwork, Mapping[str, Tensor]]:
    folder = DATA / request.param
    network = fit(
        DSparkConfig.load(folder),
        read_weights(folder),
        max_position=64,
        dtype=torch.float32,
        where=str(folder),
    )
    return network, load_file(DATA / f"{request.param}.safetensors")


def _blocks(network: DraftNetwork, recorded: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Hidden states [B * anchors, block, D] and the anchors' tokens."""
    made, tokens = [], []
    for ids, hidden, anchors in zip(recorded["input_ids"], recorded["target_hidden"], recorded["anchors"], strict=True):
        context = network.context(hidden, torch.arange(len(ids)))
        contexts = [
            OwnContexts([(keys[:position], values[:position]) for position in anchors.tolist()])
            for keys, values in context
        ]
        made.append(network(ids[anchors], anchors, contexts))
        tokens.append(ids[anchors])
    return torch.cat(made), torch.cat(tokens)


def _flat(recorded: Mapping[str, Tensor], name: str) -> Tensor:
    return recorded[name].flatten(0, 1)


def _close(ours: Tensor, theirs: Tensor) -> None:
    assert ours.shape == theirs.shape
    assert float((ours - theirs).abs().max()) < TOLERANCE


def test_there_is_a_case_of_every_kind() -> None:
    configs = [DSparkConfig.load(DATA / name) for name in CASES]
    assert {config.family for config in configs} == {"qwen3", "gemma4"}
    assert {config.markov for config in configs} == {"vanilla", "gated", "rnn"}
    assert {config.confidence for config in configs} == {True, False}
    assert {config.shared_values for config in configs} == {True, False}
    assert {config.block_size for config in configs} == {3, 5, 7}


def test_hidden_states_and_base_logits(case: tuple[DraftNetwork, Mapping[str, Tensor]]) -> None:
    network, recorded = case
    hidden, _ = _blocks(network, recorded)
    _close(hidden, _flat(recorded, "hidden"))
    _close(network.logits(hidden), _flat(recorded, "base"))


def _forced(network: DraftNetwork, recorded: Mapping[str, Tensor]) -> Walk:
    """The walk along the recorded text, as in training."""
    hidden, anchors = _blocks(network, recorded)
    return walk(network, hidden, anchors, given=_flat(recorded, "previous")[:, 1:])


def test_logits_and_confidence_along_given_tokens(case: tuple[DraftNetwork, Mapping[str, Tensor]]) -> None:
    network, recorded = case
    forced = _forced(network, recorded)
    _close(forced.logits, _flat(recorded, "logits"))
    if "confidence_logits" in recorded:
        assert forced.confidence is not None
        _close(forced.confidence, torch.sigmoid(_flat(recorded, "confidence_logits")))
    else:
        assert forced.confidence is None


def test_greedy_blocks(case: tuple[DraftNetwork, Mapping[str, Tensor]]) -> None:
    network, recorded = case
    greedy = walk(network, *_blocks(network, recorded))
    _close(greedy.logits, _flat(recorded, "greedy_logits"))
    assert torch.equal(greedy.tokens, _flat(recorded, "greedy"))
