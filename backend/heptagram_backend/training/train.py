"""The training loop of an adapter: groups of examples, packed, with checkpoints that a run is taken up from.

The loss is the mean over a step's answer tokens. Of answers that the base model gave itself (``chat``) it is the
divergence from the base's own distribution, of all others the cross entropy.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from heptagram_backend.errors import ReleaseError
from heptagram_backend.training.encode import Encoded, Encoder
from heptagram_backend.training.example import Example
from heptagram_backend.training.lora import Adapted
from heptagram_backend.training.pack import Packed, pack
from heptagram_backend.training.prompts import Prompts

STATE_FILE: Final = "state.pt"
_DRAWS: Final = 100  # of groups for one step


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is learnt, and how fast.

    Args:
        steps: of the optimizer.
        groups: of examples a step.
        longest: tokens of an example, beyond which it is left out.
        rate: the learning rate, reached after ``warmup`` steps and left in the last third, for zero. In between it is
            constant, which a cosine is not, so that a run can be prolonged, or ended early, by another ``steps``.
        save_every: steps between two checkpoints.
    """

    steps: int
    groups: int = 1
    longest: int = 900
    rate: float = 1e-3
    warmup: int = 10
    save_every: int = 50

    def rate_at(self, step: int) -> float:
        return self.rate * min(1.0, (step + 1) / self.warmup, 3 * (self.steps - step) / self.steps)


@dataclass(frozen=True, slots=True)
class Progress:
    """Of one step: mean loss of an answer token, how many were right, how many tokens were computed in how long."""

    step: int
    loss: float
    right: float
    tokens: int
    seconds: float


class Trainer:
    """Owns the optimizer and the count of steps. ``folder`` holds the state to go on from."""

    def __init__(self, adapted: Adapted, encoder: Encoder, prompts: Prompts, plan: Plan, folder: Path) -> None:
        self._adapted, self._encoder, self._prompts, self._plan = adapted, encoder, prompts, plan
        self._folder = folder
        self.step = 0
        self._optimizer = torch.optim.AdamW(
            adapted.parameters.values(), lr=plan.rate, betas=(0.9, 0.95), weight_decay=0.0
        )

    def run(self, report: Callable[[Progress], object], *, until: int | None = None) -> None:
        """Train to the end of the plan, or to a step of it; the state is saved on the way and at the end."""
        end = self._plan.steps if until is None else min(until, self._plan.steps)
        while self.step < end:
            report(self._learn())
            if self.step % self._plan.save_every == 0 or self.step == end:
                self.save()

    def save(self) -> None:
        """Write the state, whole or not at all."""
        state = {
            "step": self.step,
            "weights": self._adapted.parameters,
            "optimizer": self._optimizer.state_dict(),
        }
        part = self._folder / f"{STATE_FILE}.part"
        torch.save(state, part)
        os.replace(part, self._folder / STATE_FILE)

    def resume(self) -> bool:
        """Go on from the state in the folder; false where there is none."""
        path = self._folder / STATE_FILE
        if not path.exists():
            return False
        state: dict[str, Any] = torch.load(path, weights_only=True)
        with torch.no_grad():
            for name, parameter in self._adapted.parameters.items():
                parameter.copy_(state["weights"][name])
        self._optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        return True

    def _learn(self) -> Progress:
        began = time.monotonic()
        batches = self._batches()
        answers = sum(len(packed.labels) for _, packed in batches)
        total, right, tokens = 0.0, 0, 0
        for is_chat, packed in batches:
            logits = self._logits(packed)
            loss = self._drift(logits, packed) if is_chat else functional.cross_entropy(logits, packed.labels)
            share = len(packed.labels) / answers
            (loss * share).backward()  # type: ignore[no-untyped-call]
            total += loss.item() * share
            right += int((logits.argmax(-1) == packed.labels).sum())
            tokens += len(packed.ids)
        torch.nn.utils.clip_grad_norm_(self._adapted.parameters.values(), 1.0)
        for group in self._optimizer.param_groups:
            group["lr"] = self._plan.rate_at(self.step)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return Progress(self.step, total, right / answers, tokens, time.monotonic() - began)

    def _batches(self) -> list[tuple[bool, Packed]]:
        """The groups of this step, packed; together those that begin alike, apart those that are learnt otherwise.

        Others are drawn where every example is too long, so that a step depends on its number alone.
        """
        for draw in range(_DRAWS):
            first = (draw << 32) + self.step * self._plan.groups
            groups = [self._prompts.group(index) for index in range(first, first + self._plan.groups)]
            examples = [example for group in groups for example in group]
            kinds = {
                is_chat: self._encoded([example for example in examples if _is_chat(example) is is_chat])
                for is_chat in (False, True)
            }
            if any(kinds.values()):
                return [(is_chat, pack(encoded)) for is_chat, encoded in kinds.items() if encoded]
        raise ReleaseError(
            f"longest: no example of {_DRAWS * self._plan.groups} groups has at most {self._plan.longest} tokens"
        )

    def _encoded(self, examples: Sequence[Example]) -> list[Encoded]:
        encoded = [self._encoder(example) for example in examples]
        return [each for each in encoded if len(each.ids) <= self._plan.longest]

    def _logits(self, packed: Packed) -> Tensor:
        hidden = self._adapted.hidden(packed.ids, packed.positions, packed.mask)
        return self._adapted.logits(hidden[packed.rows])

    def _drift(self, logits: Tensor, packed: Packed) -> Tensor:
        with torch.no_grad(), self._adapted.base():
            before = self._logits(packed).log_softmax(-1)
        after = logits.log_softmax(-1)
        return functional.kl_div(after, before, reduction="batchmean", log_target=True)


def _is_chat(example: Example) -> bool:
    """Only without tools: with them the base would write anything."""
    return example.source == "chat" and not example.tools
