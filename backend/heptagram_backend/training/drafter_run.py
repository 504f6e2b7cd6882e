"""A run of ``heptagram train-drafter``: answers, training, calibration, evaluation, the drafter's folder."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import torch

from heptagram_backend.checkpoint import resolve
from heptagram_backend.drafts.dspark.network import DraftNetwork
from heptagram_backend.preprocess import Preprocessor
from heptagram_backend.release import EngineOptions, Release
from heptagram_backend.targets.loading import DTYPES
from heptagram_backend.training.answers import preparation, read_asks, write_answers
from heptagram_backend.training.drafter_data import Answer, AnswerSet, begin_set, split
from heptagram_backend.training.drafter_evaluate import Accepted, by_kind, calibrate
from heptagram_backend.training.drafter_layout import Shape, first_network, plan, read_target, save, tap_layers
from heptagram_backend.training.drafter_prompts import asks as make_asks
from heptagram_backend.training.drafter_record import recorded_engine
from heptagram_backend.training.drafter_train import Progress, Trainer, TrainOptions, resume, save_checkpoint
from heptagram_backend.training.losses import LossWeights
from heptagram_kernels.layout import K7_LAYOUT

RESULTS: Final = "results.json"
_SPARE: Final = 256  # rows of a forward for prompts, beside eight for each sequence
_TOLD_EVERY: Final = 50
_LOOKS: Final = 24  # held-out answers of a kind that are looked at during training
Say = Callable[[str], object]


def run(values: argparse.Namespace, say: Say) -> None:
    """Do what the command line says. Raises :class:`HeptagramError` for what cannot be."""
    torch.set_num_threads(values.threads)
    checkpoint = resolve(values.model, report=say)
    target = read_target(checkpoint)
    if values.prompts:
        answer(values, checkpoint, tap_layers(target["num_hidden_layers"], values.taps), say)
    if values.steps:
        train(values, checkpoint, target, say)


def answer(values: argparse.Namespace, checkpoint: Path, layers: Sequence[int], say: Say) -> None:
    """Let the target answer what has no answer yet."""
    asks = make_asks(values.seed, int(values.prompts)) if values.prompts.isdigit() else read_asks(Path(values.prompts))
    about = {"model": values.model, "format": values.format, "target_layer_ids": list(layers), "seed": values.seed}
    begin_set(values.answers, about)
    slots = values.max_num_seqs
    options = EngineOptions(
        threads=values.threads,
        max_model_len=values.max_model_len,
        max_num_seqs=slots,
        max_num_batched_tokens=8 * slots + _SPARE,
    )
    release = Release(values.model, str(checkpoint), values.format, k7_layout=K7_LAYOUT.describe(), engine=options)
    prepare = preparation(
        Preprocessor(release, checkpoint),
        seed=values.seed,
        sampled=values.sampled,
        longest_prompt=values.longest_prompt,
    )
    engine, recording = recorded_engine(release, checkpoint, layers)
    try:
        ended = write_answers(engine, recording, asks, prepare, values.answers, at_once=2 * slots)
        for count, number in enumerate(ended, start=1):
            if count % _TOLD_EVERY == 0:
                say(f"{count} answers; the last one to prompt {number} of {len(asks)}")
    finally:
        engine.close()


def train(values: argparse.Namespace, checkpoint: Path, target: Mapping[str, Any], say: Say) -> None:
    """Train on the answers, and write the drafter with its results."""
    answers = AnswerSet.open(values.answers)
    known, held_out = split(list(answers.read()))
    shape = Shape(
        layers=values.layers,
        intermediate=values.intermediate,
        block_size=values.block_size,
        markov_rank=values.markov_rank,
        markov=values.markov,
        draft_vocab=values.draft_vocab,
    )
    planned = plan(values.output, target, shape, answers.target_layer_ids, known)
    longest = max(len(answer.tokens) for answer in [*known, *held_out])
    network = first_network(checkpoint, planned, max_position=longest, seed=values.seed)
    network = move(network, torch.device(values.device))
    options = TrainOptions(
        steps=values.steps,
        answers=values.batch,
        anchors=values.anchors,
        prompt_anchors=values.prompt_anchors,
        learning_rate=values.learning_rate,
        cooldown=values.cooldown,
        losses=LossWeights(values.cross_entropy, values.distance, values.confidence),
        seed=values.seed,
        dtype=DTYPES[values.dtype],
    )
    trainer = Trainer(network, known, options)
    if resume(values.output, trainer):
        say(f"going on from step {trainer.step}")
    size = sum(one.numel() for one in network.parameters() if one.requires_grad)
    say(f"{len(known)} answers to train on, {len(held_out)} held out; {size / 1e6:.1f} million weights")
    few = _few(held_out)

    def keep() -> None:
        save(network, planned.config, values.output)
        save_checkpoint(values.output, trainer)

    progress = Progress(
        values.steps,
        say,
        keep=keep,
        keep_every=values.checkpoint_every,
        look=lambda: _told(by_kind(network, few)),
        look_every=values.evaluate_every,
    )
    trainer.run(progress)
    calibration = calibrate(network, held_out)
    results = by_kind(network, held_out)
    save(network, planned.config, values.output)
    said = {
        "trained_on": len(known),
        "held_out": {kind: asdict(one) for kind, one in results.items()},
        "calibration_error": None if calibration is None else {"before": calibration[0], "after": calibration[1]},
    }
    (values.output / RESULTS).write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    say(f"{values.output}: {_told(results)}")


def move(network: DraftNetwork, device: torch.device) -> DraftNetwork:
    """To a device, the rotary embedding included."""
    network.places = network.places.to(device)
    return network.to(device)


def _few(answers: Sequence[Answer]) -> list[Answer]:
    greedy = [answer for answer in answers if answer.seed is None]
    kinds = sorted({answer.kind for answer in greedy})
    return [one for kind in kinds for one in [answer for answer in greedy if answer.kind == kind][:_LOOKS]]


def _told(results: Mapping[str, Accepted]) -> str:
    return "; ".join(f"{kind} {one}" for kind, one in results.items()) or "nothing was held out"
