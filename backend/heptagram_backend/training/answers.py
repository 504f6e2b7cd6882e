"""What a target answers to prompts, written by the engine itself: batched, under its grammars, greedy and sampled.

A drafter is trained on what its target says, not on what was written by others. Hidden states are kept on the way: the
engine computes them anyway, and they lie beside its cache row by row, as a drafter's own keys and values do.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from heptagram_backend.engine_api import Engine
from heptagram_backend.errors import HeptagramError, ReleaseError, RequestError
from heptagram_backend.generation import GenerationRequest, OutputSpec, SamplingParams
from heptagram_backend.preprocess import Preprocessor
from heptagram_backend.training.drafter_data import Answer, answer_path, write_answer
from heptagram_backend.training.drafter_record import Recorder, Recording
from heptagram_wire.events import Event, Finish, TextDelta
from heptagram_wire.requests import encode_request

TOP: Final = 16
"""How many of the target's likeliest tokens are kept at each place."""
_SHORTEST: Final = 2
_TEMPERATURE: Final = 0.7


@dataclass(frozen=True, slots=True)
class Ask:
    """One chat request for the target. ``kind``, ``group`` and ``held_out`` are those of its :class:`Answer`."""

    kind: str
    group: str
    request: Mapping[str, Any]
    held_out: bool = False


def read_asks(path: Path) -> list[Ask]:
    """Asks from JSON lines with these fields.

    Raises:
        ReleaseError: the file cannot be read, or a line is none.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            return [Ask(**json.loads(line)) for line in lines if line.strip()]
    except (OSError, ValueError, TypeError) as error:
        raise ReleaseError(f"prompts: {path} cannot be read ({error})") from error


class Collector:
    """The tokens of one answer with what the target thought of them. Implements :class:`engine_api.Sink`."""

    def __init__(self, ended: Callable[[], object]) -> None:
        self._ended = ended
        self._events: list[Event] = []
        self.done = threading.Event()

    def send(self, events: Sequence[Event], *, final: bool) -> None:
        self._events.extend(events)
        if final:
            self._end()

    def fail(self, error: HeptagramError) -> None:
        del error  # what cannot be answered teaches nothing
        self._end()

    def _end(self) -> None:
        self.done.set()
        self._ended()

    @property
    def is_whole(self) -> bool:
        return bool(self._events) and isinstance(self._events[-1], Finish)

    def scored(self) -> tuple[list[int], Tensor, Tensor]:
        """Token ids, and :data:`TOP` likeliest ids int64 and log probabilities float32, [n, TOP]."""
        told = [one for event in self._events if isinstance(event, TextDelta) for one in event.logprobs or ()]
        top = [one.top_logprobs for one in told]
        ids = torch.zeros((len(told), TOP), dtype=torch.int64)
        logprobs = torch.full((len(told), TOP), -torch.inf)
        for place, entries in enumerate(top):  # under a grammar there may be fewer
            ids[place, : len(entries)] = torch.tensor([each.token_id for each in entries], dtype=torch.int64)
            logprobs[place, : len(entries)] = torch.tensor([each.logprob for each in entries])
        return [each.token_id for each in told], ids, logprobs


@dataclass(frozen=True, slots=True)
class _Running:
    """A request on its way."""

    ask: Ask
    request: GenerationRequest
    recorder: Recorder
    collector: Collector

    def answer(self) -> Answer | None:
        """What came of it; None if it failed, or is so short that nothing can be drafted."""
        if not self.collector.is_whole:
            return None
        generated, ids, logprobs = self.collector.scored()
        if len(generated) < _SHORTEST:
            return None
        return Answer(
            tokens=torch.tensor([*self.request.prompt_ids, *generated]),
            prompt=len(self.request.prompt_ids),
            hidden=self.recorder.hidden,
            top_ids=ids,
            top_logprobs=logprobs,
            kind=self.ask.kind,
            group=self.ask.group,
            held_out=self.ask.held_out,
            seed=self.request.sampling.seed,
        )


Prepare = Callable[[int, Ask], GenerationRequest | None]
"""Makes a request of an ask and its number; None if it cannot be served."""


def write_answers(
    engine: Engine, recording: Recording, asks: Sequence[Ask], prepare: Prepare, folder: Path, *, at_once: int
) -> Iterator[int]:
    """Write the answers that are not in ``folder`` yet, ``at_once`` on their way; yields the number of each that ends.

    What cannot be served, or fails, is left out.
    """
    room = threading.Semaphore(at_once)
    running: dict[int, _Running] = {}
    for number, ask in enumerate(asks):
        path = answer_path(folder, number)
        request = None if path.exists() else prepare(number, ask)
        if request is None:
            continue
        room.acquire()
        collector = Collector(room.release)
        engine.submit(request, collector)
        running[number] = _Running(ask, request, recording.take(), collector)
        yield from _ended(running, folder)
    while running:
        next(iter(running.values())).collector.done.wait()
        yield from _ended(running, folder)


def _ended(running: dict[int, _Running], folder: Path) -> list[int]:
    ready = [number for number, one in running.items() if one.collector.done.is_set()]
    for number in ready:
        answer = running.pop(number).answer()
        if answer is not None:
            write_answer(answer_path(folder, number), answer)
    return ready


def preparation(preprocessor: Preprocessor, *, seed: int, sampled: float, longest_prompt: int) -> Prepare:
    """Requests as they are served; the share ``sampled`` of them is drawn, each by a seed of its own."""

    def prepare(number: int, ask: Ask) -> GenerationRequest | None:
        try:
            request = preprocessor.prepare(encode_request(ask.request))
        except RequestError:
            return None
        draws = random.Random(f"{seed} {number}").random() < sampled
        sampling = SamplingParams(temperature=_TEMPERATURE, seed=seed + number) if draws else SamplingParams()
        return recorded(replace(request, sampling=sampling)) if len(request.prompt_ids) <= longest_prompt else None

    return prepare


def recorded(request: GenerationRequest) -> GenerationRequest:
    """``request``, every token of which is told of as text, with what the target thought of it."""
    return replace(request, output=OutputSpec(request.output.format), logprobs=TOP)
