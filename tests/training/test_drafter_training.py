"""A tiny drafter is trained, taken up again, written, and served by the engine."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
import torch

from heptagram_backend.drafts.dspark.loading import read_weights, target_ends
from heptagram_backend.errors import ReleaseError
from heptagram_backend.training.drafter_arguments import parse_arguments
from heptagram_backend.training.drafter_data import Answer, split
from heptagram_backend.training.drafter_evaluate import by_kind
from heptagram_backend.training.drafter_layout import (
    ENDS,
    Shape,
    drafter_config,
    first_network,
    own_weights,
    plan,
    read_target,
    save,
    tap_layers,
)
from heptagram_backend.training.drafter_run import train
from heptagram_backend.training.drafter_train import Trainer, TrainOptions, resume, save_checkpoint
from heptagram_backend.training.losses import LossWeights
from tests.training.drafter_bench import TAPS, served, tiny_asks

SHAPE = Shape(layers=1, intermediate=96, markov_rank=16, draft_vocab=200)
OPTIONS = TrainOptions(
    steps=6,
    answers=2,
    anchors=8,
    prompt_anchors=2,
    learning_rate=3e-3,
    losses=LossWeights(1, 1, 1),
    dtype=torch.float32,
)


def _trainer(tiny: Path, answers: list[Answer], folder: Path, options: TrainOptions = OPTIONS) -> Trainer:
    planned = plan(folder, read_target(tiny), SHAPE, TAPS, answers)
    return Trainer(first_network(tiny, planned, max_position=128, seed=1), answers, options)


def test_a_run_that_is_taken_up_ends_with_the_same_bits(tiny: Path, answers: list[Answer], tmp_path: Path) -> None:
    whole, stopped, again = (_trainer(tiny, answers, tmp_path) for _ in range(3))
    whole.run()
    stopped.run(until=3)
    save_checkpoint(tmp_path, stopped)
    assert resume(tmp_path, again)
    again.run()
    for name, weight in whole.state()["weights"].items():
        assert torch.equal(weight, again.state()["weights"][name]), name
        assert not torch.equal(weight, stopped.state()["weights"][name]) or "hidden_norm" in name, name
    assert not resume(tmp_path / "none", again)
    (tmp_path / "checkpoint.pt").write_bytes(b"none")
    with pytest.raises(ReleaseError, match="cannot be gone on from"):
        resume(tmp_path, again)


def test_the_rate_rises_stays_and_falls() -> None:
    options = TrainOptions(steps=100, learning_rate=1.0, warmup=0.1, cooldown=0.4)
    rates = [options.rate(step) for step in range(100)]
    assert rates[:3] == pytest.approx([0.1, 0.2, 0.3])
    assert rates[10:60] == [1.0] * 50
    assert rates[80] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(0.025)


def test_the_ends_are_the_targets_and_stay_so(tiny: Path, answers: list[Answer], tmp_path: Path) -> None:
    trainer = _trainer(tiny, answers, tmp_path)
    network = trainer._network
    trainer.run()
    ends = target_ends(tiny)
    assert torch.equal(network.embed_tokens.weight, ends[ENDS[0]].float())
    assert torch.equal(network.lm_head.weight, ends[ENDS[1]].float()[network.vocabulary])
    said = {token for answer in answers for token in answer.tokens[answer.prompt :].tolist()}
    assert said <= set(network.vocabulary.tolist())
    assert not any(network.config.mask_token_id in answer.tokens for answer in answers)
    assert not own_weights(network).keys() & set(ENDS)


def test_the_first_layers_are_the_targets_last_ones(tiny: Path, answers: list[Answer], tmp_path: Path) -> None:
    network = _trainer(tiny, answers, tmp_path)._network
    weights, target = network.state_dict(), read_weights(tiny)
    for name in ("self_attn.q_proj", "self_attn.o_proj", "input_layernorm"):
        assert torch.equal(weights[f"layers.0.{name}.weight"], target[f"model.layers.1.{name}.weight"])
    rows = {tuple(row) for row in target["model.layers.1.mlp.gate_proj.weight"].tolist()}
    cut = weights["layers.0.mlp.gate_proj.weight"].tolist()
    assert len(cut) == 96
    assert {tuple(row) for row in cut} <= rows


@pytest.mark.parametrize(
    ("count", "taps", "layers"), [(36, 5, [1, 9, 17, 25, 33]), (30, 4, [1, 10, 18, 27]), (2, 1, [0])]
)
def test_taps_are_spread_over_the_target(count: int, taps: int, layers: list[int]) -> None:
    assert tap_layers(count, taps) == layers


def test_more_taps_than_layers_are_refused() -> None:
    with pytest.raises(ReleaseError, match="allows 1 to 3"):
        tap_layers(6, 4)


def test_a_whole_vocabulary_is_said_by_saying_nothing(tiny: Path) -> None:
    config = drafter_config(read_target(tiny), Shape(draft_vocab=0), TAPS, 3)
    assert "draft_vocab_size" not in config
    assert drafter_config(read_target(tiny), Shape(draft_vocab=100), TAPS, 3)["draft_vocab_size"] == 100


def _arguments(tiny: Path, answers: Path, output: Path, *more: str) -> argparse.Namespace:
    fixed = ["--model", str(tiny), "--answers", str(answers), "--output", str(output), "--dtype", "float32"]
    shape = ["--layers", "1", "--markov-rank", "16", "--draft-vocab", "200", "--seed", "1"]
    return parse_arguments([*fixed, *shape, *more])


def test_a_trained_drafter_is_accepted_more_often_by_the_engine(
    tiny: Path, answers: list[Answer], answers_folder: Path, tmp_path: Path
) -> None:
    """Data, training, calibration and folder as the command makes them, about half a minute of it training."""
    known, held_out = split(answers)
    planned = plan(tmp_path / "none", read_target(tiny), SHAPE, TAPS, known)
    untrained = first_network(tiny, planned, max_position=128, seed=1)
    save(untrained, planned.config, tmp_path / "untrained")
    losses = ("--cross-entropy", "1", "--distance", "1", "--learning-rate", "3e-3")
    told: list[str] = []
    output = tmp_path / "trained"
    values = _arguments(tiny, answers_folder, output, "--steps", "180", "--evaluate-every", "90", *losses)
    train(values, tiny, read_target(tiny), told.append)

    asks = [ask for ask in tiny_asks(48) if ask.held_out]
    before, plain = served(tiny, tmp_path / "untrained", asks)
    after, drafted = served(tiny, output, asks)
    assert drafted == plain
    assert after > before + 0.7  # the grammar's masks alone let even an untrained one guess well
    results = json.loads((output / "results.json").read_text())
    assert results["trained_on"] == len(known)
    assert results["held_out"]["tool"]["answers"] == len([one for one in held_out if one.seed is None])
    assert by_kind(untrained, held_out)["tool"].tokens_per_step < 1.3
    assert 2.2 < results["held_out"]["tool"]["tokens_per_step"] < after
    assert results["calibration_error"]["after"] < 0.2
    assert sum("held out: tool" in line for line in told) == 2
    assert (output / "model.safetensors").stat().st_size < 300_000
