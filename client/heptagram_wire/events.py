"""Typed events of a chat stream.

Every stream is ``start`` (``ping`` | delta | call)* (``finish`` | ``failure``). Exactly one :class:`Finish` or
:class:`Failure` comes last, in the same send as Triton's FINAL flag. Events are frozen and valid once built.

With ``n`` above 1 the answers come mixed, each event with its ``choice``, and each answer ends with a ``choice_end``;
the one ``finish`` or ``failure`` behind them is of the request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "tool_calls", "cancelled", "deadline"]
FINISH_REASONS: tuple[FinishReason, ...] = ("stop", "length", "tool_calls", "cancelled", "deadline")


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class SpeculativeStats:
    """Speculative decoding of one request, under the keys that AIPerf reads (vLLM's ``metrics.speculative_decoding``).

    ``acceptance_histogram[n]`` counts the steps in which ``n`` of the seven drafts were accepted.
    """

    acceptance_histogram: tuple[int, ...] = (0,) * 8
    num_draft_tokens: int = 0

    @property
    def num_spec_steps(self) -> int:
        return sum(self.acceptance_histogram)

    @property
    def num_accepted_draft_tokens(self) -> int:
        return sum(accepted * steps for accepted, steps in enumerate(self.acceptance_histogram))

    @property
    def num_accepted_tokens_per_pos(self) -> tuple[int, ...]:
        """How often the first, second .. draft of a step was accepted."""
        histogram = self.acceptance_histogram
        return tuple(sum(histogram[place:]) for place in range(1, len(histogram)))

    @property
    def num_spec_tokens(self) -> int:
        """The most drafts of one step, whatever the request allowed: seven."""
        return len(self.acceptance_histogram) - 1

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens of a step: its accepted drafts and one bonus token."""
        return 1 + self.num_accepted_draft_tokens / self.num_spec_steps if self.num_spec_steps else 0.0

    @property
    def draft_acceptance_rate(self) -> float:
        return self.num_accepted_draft_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0


@dataclass(frozen=True, slots=True)
class Stats:
    """What a request cost. Times in seconds, ``mask_bytes`` in bytes uploaded to the device.

    ``compile_s`` is the time until a constraint's matcher was there; it runs beside the others.

    ``seed`` is that of a sampled answer, so that it can be had again where the request gave none.

    ``forced`` of the accepted drafts were the grammar's forced text. ``replaced`` drafts stood where the grammar had
    refused another one. Drafts that were not verified were ``cut_by_grammar``, or ``cut_by_width``: too unlikely to be
    worth a row.
    """

    prefill_s: float = 0.0
    decode_s: float = 0.0
    steps: int = 0
    forced: int = 0
    masked_rows: int = 0
    mask_bytes: int = 0
    preemptions: int = 0
    speculative_decoding: SpeculativeStats = field(default_factory=SpeculativeStats)
    seed: int | None = None
    replaced: int = 0
    cut_by_grammar: int = 0
    cut_by_width: int = 0
    compile_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TopLogprob:
    """A token that could have been chosen. ``bytes`` is ``None`` for tokens without a text, such as control tokens."""

    token: str
    token_id: int
    logprob: float
    bytes: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token's natural log probability, by the model's logits over what was allowed there, before penalties and
    temperature. ``top_logprobs``: the likeliest tokens, best first."""

    token: str
    token_id: int
    logprob: float
    bytes: tuple[int, ...] | None = None
    top_logprobs: tuple[TopLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """The request was admitted; ``id`` is made by the server and cannot be guessed."""

    id: str
    model: str
    version: str
    prompt_tokens: int
    max_tokens: int
    choice: int = 0


@dataclass(frozen=True, slots=True)
class Ping:
    """A heartbeat while nothing is produced; it also lets the server see that the client has left."""

    choice: int = 0


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    choice: int = 0


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    choice: int = 0


@dataclass(frozen=True, slots=True)
class CallStart:
    """Tool call number ``index`` (from 0) begins."""

    index: int
    id: str
    name: str
    choice: int = 0


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """The next piece of the JSON text of the arguments of call ``index``."""

    index: int
    text: str
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    choice: int = 0


@dataclass(frozen=True, slots=True)
class CallEnd:
    """Call ``index`` is complete: its argument deltas join to one valid JSON object."""

    index: int
    choice: int = 0


@dataclass(frozen=True, slots=True)
class ChoiceEnd:
    """One of several answers is complete; nothing of this ``choice`` follows. Not sent where there is only one."""

    reason: FinishReason
    completion_tokens: int
    choice: int = 0


@dataclass(frozen=True, slots=True)
class Finish:
    """The request is over. Of several answers ``usage`` and ``stats`` are summed (the prompt counts once, ``seed`` is
    choice 0's), and ``reason`` is choice 0's, unless one of them was cut by ``cancelled`` or ``deadline``."""

    reason: FinishReason
    usage: Usage = field(default_factory=Usage)
    stats: Stats = field(default_factory=Stats)
    choice: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """The request failed after ``start``. ``param`` is an OpenAI-style path or ``None``."""

    code: str
    message: str
    param: str | None = None
    choice: int = 0


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event of a type that this version does not know; consumers ignore it."""

    type: str
    choice: int = 0


Event = (
    Start
    | Ping
    | ReasoningDelta
    | TextDelta
    | CallStart
    | ArgumentsDelta
    | CallEnd
    | ChoiceEnd
    | Finish
    | Failure
    | UnknownEvent
)
Terminal = Finish | Failure
