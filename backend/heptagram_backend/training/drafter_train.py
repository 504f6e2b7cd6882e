"""The training loop of a drafter. What a step does depends on the seed and its number alone, so a run that is taken up
from a checkpoint ends with the weights, bit for bit, of one that was never stopped."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final

import torch
from torch import Tensor

from heptagram_backend.drafts.dspark.network import DraftNetwork
from heptagram_backend.errors import ReleaseError
from heptagram_backend.training.drafter_blocks import cut, drawn_anchors, hidden_states, taught
from heptagram_backend.training.drafter_data import Answer
from heptagram_backend.training.losses import Losses, LossWeights, Thought, draft_losses

CHECKPOINT: Final = "checkpoint.pt"
_FORGET: Final = 0.98  # of the running means that are reported


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """``answers`` a step, up to ``anchors`` blocks of each, and ``prompt_anchors`` of its prompt, which is text as well
    where there are few answers. The rate rises over the share ``warmup`` of the steps and
    falls to nothing over the last ``cooldown``. ``dtype`` is what products are computed in; weights are float32."""

    steps: int = 2000
    answers: int = 4
    anchors: int = 32
    prompt_anchors: int = 0
    learning_rate: float = 6e-4
    warmup: float = 0.04
    cooldown: float = 0.3
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    losses: LossWeights = field(default_factory=LossWeights)
    seed: int = 0
    dtype: torch.dtype = torch.bfloat16

    def rate(self, step: int) -> float:
        """The learning rate of a step, from 0."""
        rise = (step + 1) / max(1, math.ceil(self.warmup * self.steps))
        fall = (self.steps - step) / max(1, math.ceil(self.cooldown * self.steps))
        return self.learning_rate * min(1.0, rise, fall)


class Trainer:
    """Trains ``network``, on the device that it is on, with ``answers``."""

    def __init__(self, network: DraftNetwork, answers: Sequence[Answer], options: TrainOptions) -> None:
        if not answers:
            raise ReleaseError("there is no answer to train on")
        self._network, self._answers, self._options = network, answers, options
        self._weights = [tensor for tensor in network.parameters() if tensor.requires_grad]
        self._optimizer = torch.optim.AdamW(
            self._weights, lr=options.learning_rate, betas=(0.9, 0.95), weight_decay=options.weight_decay
        )
        self.step = 0
        self.means: dict[str, float] = {}

    def run(self, after: Callable[[Trainer], object] = id, *, until: int | None = None) -> None:
        """Train to the end, or up to the step ``until``; ``after`` is called behind each step."""
        while self.step < (self._options.steps if until is None else until):
            self._update()
            self.step += 1
            after(self)

    def state(self) -> dict[str, Any]:
        weights = {name: one for name, one in self._network.named_parameters() if one.requires_grad}
        return {"step": self.step, "weights": weights, "optimizer": self._optimizer.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state` gave."""
        self._network.load_state_dict(state["weights"], strict=False)
        self._optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]

    def _update(self) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = self._options.rate(self.step)
        self._optimizer.zero_grad(set_to_none=True)
        for place in range(self._options.answers):
            number = self.step * self._options.answers + place
            losses = self._losses(self._answers[self._nth(number)], number)
            (losses.total / self._options.answers).backward()  # type: ignore[no-untyped-call]
            self._note(losses)
        torch.nn.utils.clip_grad_norm_(self._weights, self._options.max_grad_norm)
        self._optimizer.step()

    def _nth(self, number: int) -> int:
        """Which answer comes as number ``number``: each epoch has its own order."""
        epoch, place = divmod(number, len(self._answers))
        order = list(range(len(self._answers)))
        random.Random(f"{self._options.seed}-{epoch}").shuffle(order)
        return order[place]

    def _losses(self, answer: Answer, number: int) -> Losses:
        generator = torch.Generator().manual_seed(self._options.seed + 1_000_003 * number)
        positions = drawn_anchors(
            answer, generator, answers=self._options.anchors, prompts=self._options.prompt_anchors
        )
        network, blocks = self._network, cut(self._network, answer, positions)
        device = network.fc.weight.device
        with torch.autocast(device.type, dtype=self._options.dtype, enabled=self._options.dtype != torch.float32):
            hidden = hidden_states(network, answer, blocks)
            logits, confidence = taught(network, hidden, blocks.previous.to(device))
        thought = Thought(blocks.thought.ids.to(device), blocks.thought.chances.to(device))
        labels, counts = blocks.labels.to(device), blocks.counts.to(device)
        return draft_losses(logits, labels, thought, counts, confidence, self._options.losses)

    def _note(self, losses: Losses) -> None:
        for name in ("cross_entropy", "distance", "confidence", "acceptance"):
            value: Tensor = getattr(losses, name)
            seen = float(value.detach())
            self.means[name] = _FORGET * self.means.get(name, seen) + (1 - _FORGET) * seen


class Progress:
    """Says how far a run is, calls ``keep`` every so many steps and at the end, and ``look`` now and then."""

    def __init__(
        self,
        steps: int,
        say: Callable[[str], object],
        *,
        keep: Callable[[], object],
        keep_every: int,
        look: Callable[[], str],
        look_every: int,
    ) -> None:
        self._steps, self._say = steps, say
        self._keep, self._keep_every = keep, keep_every
        self._look, self._look_every = look, look_every
        self._began, self._done = time.monotonic(), 0

    def __call__(self, trainer: Trainer) -> None:
        step = trainer.step
        self._done += 1
        if step % self._keep_every == 0 or step == self._steps:
            self._keep()
            seconds = (time.monotonic() - self._began) / self._done
            means = ", ".join(f"{name} {value:.3f}" for name, value in trainer.means.items())
            left = seconds * (self._steps - step) / 60
            self._say(f"step {step} of {self._steps}, {seconds:.2f} s a step, {left:.0f} min left: {means}")
        if self._look_every and step % self._look_every == 0:
            self._say(f"step {step}, held out: {self._look()}")


def save_checkpoint(folder: Path, trainer: Trainer) -> None:
    """Write the checkpoint, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{CHECKPOINT}.part"
    torch.save(trainer.state(), part)
    os.replace(part, folder / CHECKPOINT)


def resume(folder: Path, trainer: Trainer) -> bool:
    """Go on from the checkpoint in ``folder``; False if there is none.

    Raises:
        ReleaseError: it is of another drafter, or cannot be read.
    """
    path = folder / CHECKPOINT
    if not path.exists():
        return False
    try:
        trainer.restore(torch.load(path, weights_only=True))
    except (OSError, RuntimeError, KeyError, ValueError, UnpicklingError) as error:
        raise ReleaseError(f"{path} cannot be gone on from ({error}); remove it to begin anew") from error
    return True
