"""``n`` answers to one request: as many sequences, and one way out that joins them.

Choice ``i`` is what the same request alone gives for the seed ``seed + i`` modulo 2^64, as in vLLM; without a seed one
is made up and told. Greedy choices are equal. The first sequence writes the prompt, the others take its complete
blocks (:mod:`heptagram_backend.scheduler`). Each has a matcher of its own, of one compiled grammar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from heptagram_backend.engine_api import Sink
from heptagram_backend.errors import HeptagramError
from heptagram_backend.generation import GenerationRequest
from heptagram_backend.sampling import SEEDS, make_seed
from heptagram_backend.sequence import Sequence as Running
from heptagram_wire.events import (
    ChoiceEnd,
    Event,
    Failure,
    Finish,
    SpeculativeStats,
    Start,
    Stats,
    Usage,
)

Make = Callable[[str, GenerationRequest, Sink], Running]


def make_choices(make: Make, id: str, request: GenerationRequest, sink: Sink) -> tuple[Running, ...]:
    """The sequences of a request; those behind the first follow it."""
    if request.n == 1:
        return (make(id, request, sink),)
    joint = Choices(sink, request.n)
    seed = make_seed() if request.sampling.seed is None else request.sampling.seed
    made: list[Running] = []
    for choice in range(request.n):
        sampling = replace(request.sampling, seed=_wrapped(seed + choice))
        made.append(make(id, replace(request, sampling=sampling), ChoiceSink(joint, choice)))
    for one in made[1:]:
        one.leader = made[0]
    joint.sequences = tuple(made)
    return joint.sequences


def _wrapped(seed: int) -> int:
    """A seed beyond the range stands for the same 64 bits within it."""
    return seed - 2**64 if seed > SEEDS[1] else seed


class Choices:
    """What one request's sink hears of its sequences.

    One ``start``; of each choice its own events and ``choice_end``; one ``finish`` when the last has ended. A choice
    that fails ends the others by their ``fault``, and nothing but the failure is told from there on. Called by whoever
    owns the output of the sequences, one call at a time.
    """

    def __init__(self, sink: Sink, size: int) -> None:
        self.sequences: tuple[Running, ...] = ()
        self._sink = sink
        self._running = size
        self._finished: dict[int, Finish] = {}
        self._started = False
        self._error: HeptagramError | None = None

    def tell(self, choice: int, events: Sequence[Event], *, final: bool) -> None:
        """Pass on what choice number ``choice`` has to say; with ``final`` it has ended."""
        told = [part for event in events for part in self._told(choice, event)]
        self._running -= final
        if final and not self._running:
            self._end(told)
        elif told:
            self._sink.send(told, final=False)

    def fail(self, error: HeptagramError) -> None:
        """One of them has failed before it told anything."""
        self._spread(error)
        self._running -= 1
        if not self._running:
            self._end([])

    def _told(self, choice: int, event: Event) -> Sequence[Event]:
        if self._error is not None:
            return ()
        match event:
            case Start():
                first, self._started = not self._started, True
                return (event,) if first else ()
            case Finish():
                self._finished[choice] = event
                return (ChoiceEnd(event.reason, event.usage.completion_tokens, choice),)
            case Failure():
                self._spread(HeptagramError(event.message, code=event.code, param=event.param))
                return ()
            case _:
                return (replace(event, choice=choice) if choice else event,)

    def _spread(self, error: HeptagramError) -> None:
        if self._error is None:
            self._error = error
            for sequence in self.sequences:
                sequence.fault = sequence.fault or error

    def _end(self, told: list[Event]) -> None:
        if self._error is None:
            self._sink.send([*told, _joined([end for _, end in sorted(self._finished.items())])], final=True)
        elif self._started:
            wire = self._error.wire
            self._sink.send([*told, Failure(wire.code, wire.message, wire.param)], final=True)
        else:
            self._sink.fail(self._error)


class ChoiceSink:
    """The sink of one of them; see :class:`heptagram_backend.engine_api.Sink`."""

    def __init__(self, choices: Choices, choice: int) -> None:
        self._choices = choices
        self._choice = choice

    def send(self, events: Sequence[Event], *, final: bool) -> None:
        self._choices.tell(self._choice, events, final=final)

    def fail(self, error: HeptagramError) -> None:
        self._choices.fail(error)


def _joined(ends: Sequence[Finish]) -> Finish:
    """The end of all: what was cut says so for the whole, else it ends as the first choice does."""
    cut = [end.reason for end in ends if end.reason in ("cancelled", "deadline")]
    stats = [end.stats for end in ends]
    return Finish(
        reason=cut[0] if cut else ends[0].reason,
        usage=Usage(ends[0].usage.prompt_tokens, sum(end.usage.completion_tokens for end in ends)),
        stats=Stats(
            prefill_s=stats[0].prefill_s,
            decode_s=max(each.decode_s for each in stats),
            compile_s=max(each.compile_s for each in stats),
            seed=stats[0].seed,
            speculative_decoding=SpeculativeStats(
                tuple(map(sum, zip(*(each.speculative_decoding.acceptance_histogram for each in stats), strict=True))),
                sum(each.speculative_decoding.num_draft_tokens for each in stats),
            ),
            **{name: sum(getattr(each, name) for each in stats) for name in _COUNTS},
        ),
    )


_COUNTS: Final = (
    "steps",
    "forced",
    "replaced",
    "cut_by_grammar",
    "cut_by_width",
    "masked_rows",
    "mask_bytes",
    "preemptions",
)
