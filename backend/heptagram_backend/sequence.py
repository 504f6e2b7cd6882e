"""One request while it runs: its tokens, its place in the cache, its matcher. Owned by the scheduler; no torch."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial

from heptagram_backend.acceptance import Rates
from heptagram_backend.constraint import Grammar
from heptagram_backend.drafts.base import Drafter
from heptagram_backend.emit import Emitter
from heptagram_backend.ends import CountedSink
from heptagram_backend.engine_api import Sink
from heptagram_backend.errors import HeptagramError
from heptagram_backend.generation import GenerationRequest
from heptagram_backend.logprobs import ScoredToken
from heptagram_backend.sampling import SequenceSampling
from heptagram_backend.stats import SequenceStats
from heptagram_backend.trigger import TriggerWatch


class State(Enum):
    QUEUED = auto()  # holds neither slot nor blocks: new, or preempted
    PREFILLING = auto()  # what is known of the sequence is being written into its blocks
    DECODING = auto()  # K7 steps
    DONE = auto()  # slot and blocks freed, matcher closed, FINAL sent


_MOVES: frozenset[tuple[State, State]] = frozenset(
    {
        (State.QUEUED, State.PREFILLING),
        (State.PREFILLING, State.DECODING),
        (State.PREFILLING, State.QUEUED),
        (State.DECODING, State.QUEUED),
        (State.QUEUED, State.DONE),
        (State.PREFILLING, State.DONE),
        (State.DECODING, State.DONE),
    }
)


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens ``0 .. len(tokens) - 1``; the last one is the anchor of the next step and not in the cache yet.

    ``cached`` rows of ``blocks`` hold tokens that will stay, the first ``prefilled`` of them written as a prompt.
    Tokens, matcher, drafter and emitter know nothing of the cache, so they outlive a preemption as they are.

    While a step's output is told (:mod:`heptagram_backend.outbox`), ``emitter``, ``sink``, ``unread``, ``fault`` and
    ``last_send`` are the teller's; all else is the engine thread's at any time.
    """

    id: str
    request: GenerationRequest
    sink: Sink
    drafter: Drafter
    emitter: Emitter
    stop_ids: frozenset[int]
    sampling: SequenceSampling | None = None  # None: greedy
    drafts_forced: bool = True  # the grammar's forced text is drafted
    drafts_by_mask: bool = False  # the drafter reads the masks, so they are filled first
    watch: TriggerWatch | None = None  # while text is free and a call may open
    arrived: float = field(default_factory=time.monotonic)
    state: State = State.QUEUED
    rank: tuple[int, int] = (0, 0)  # priority and arrival; the lowest comes first
    overtaken: int = 0
    slot: int | None = None
    blocks: list[int] = field(default_factory=list)
    block_keys: list[bytes] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    cached: int = 0
    prefilled: int = 0
    grammar: Grammar | None = None
    pending_grammar: Future[Grammar] | None = None
    pending_since: float = 0.0
    triggered: bool = False  # the grammar came from the trigger and covers one call
    leader: Sequence | None = None  # of the same request: it writes the prompt first
    started: bool = False  # `start` was sent
    ends: CountedSink | None = None  # of the request; it counts how that ends
    cancelled: bool = False
    unread: list[tuple[int, ScoredToken | None]] = field(default_factory=list)  # committed, not yet read as text
    fault: HeptagramError | None = None  # of reading or sending; the engine ends the request
    last_send: float = 0.0
    acceptance: Rates = field(default_factory=partial(Rates, memory=16))  # of its drafts
    stats: SequenceStats = field(default_factory=SequenceStats)

    def __post_init__(self) -> None:
        self.tokens.extend(self.request.prompt_ids)
        self.drafter.extend(self.tokens)

    @property
    def name(self) -> str:
        """What log lines call it: the request's id as its client knows it, or ours."""
        return self.request.request_id or self.id

    @property
    def prompt_tokens(self) -> int:
        return len(self.request.prompt_ids)

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt_tokens

    @property
    def remaining(self) -> int:
        return self.request.max_tokens - self.generated

    @property
    def prefill_left(self) -> int:
        """Tokens still to be written; the last one is the anchor and is written by its step."""
        return len(self.tokens) - 1 - self.cached

    @property
    def can_decode(self) -> bool:
        return self.state is State.DECODING and self.pending_grammar is None

    @property
    def leaves_grammar(self) -> bool:
        """The matcher is given up when its one call is complete, and text is free again."""
        trigger = self.request.trigger
        return self.triggered and trigger is not None and not trigger.once

    def move(self, state: State) -> None:
        """Apply one legal move; an illegal one raises and changes nothing."""
        if (self.state, state) not in _MOVES:
            raise RuntimeError(f"sequence {self.id}: {self.state.name} cannot become {state.name}")
        self.state = state

    def append(self, token: int) -> None:
        """Commit one token. The row of the previous anchor is in the cache by now."""
        self.tokens.append(token)
        self.cached = len(self.tokens) - 1
        self.drafter.extend((token,))

    def wait_for(self, grammar: Future[Grammar]) -> None:
        """No step before this matcher is there."""
        self.pending_grammar = grammar
        self.pending_since = time.monotonic()

    def attach(self, grammar: Grammar) -> None:
        """What was waited for is there."""
        self.grammar, self.pending_grammar = grammar, None
        self.stats.compile_s += time.monotonic() - self.pending_since

    def read(self) -> None:
        """Give the committed tokens to the emitter, in order.

        Raises:
            InvalidOutputError: as :meth:`Emitter.push`; what stands behind is dropped.
        """
        unread, self.unread = self.unread, []
        for token, scored in unread:
            self.emitter.push(token, scored)

    def release_grammar(self) -> None:
        """Close the matcher, and the one that is still being made; idempotent."""
        if self.grammar is not None:
            self.grammar.close()
            self.grammar = None
        if self.pending_grammar is not None:
            pending, self.pending_grammar = self.pending_grammar, None
            if not pending.cancel():
                pending.add_done_callback(_close_late)


def _close_late(pending: Future[Grammar]) -> None:
    if not pending.cancelled() and pending.exception() is None:
        pending.result().close()
