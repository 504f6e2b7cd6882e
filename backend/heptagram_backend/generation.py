"""What ``preprocess`` hands to ``generate``: one validated request, ready to run, as JSON and prompt ids."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from heptagram_backend import plan_json
from heptagram_backend.constraint import ConstraintSpec

DraftSource = str
"""``auto``, ``none``, or names parted by commas; :func:`heptagram_backend.drafts.fault_of_drafts` says which."""

Markup = Literal["free", "guarded", "calls"]


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """How generated text is read back.

    ``format`` names the class in :mod:`heptagram_backend.formats`. Without ``parse_calls`` markup is plain text.
    ``markup`` says what is known of it: ``free`` text may contain anything, under ``guarded`` an opening tag surely
    opens a call, and an answer of ``calls`` holds nothing else. So the markup of a cut call is never told as text.
    ``schemas`` holds, by tool name, the JSON Schema that a finished call must validate against (enforced tools only),
    ``answer`` the one of the text of an answer without calls.
    ``tools`` names the tools that may be called, for a format that must know them to read a call; by parameter it has
    the JSON types that a value may be of, parted by ``|``.
    """

    format: str
    parse_calls: bool = False
    markup: Markup = "free"
    starts_in_reasoning: bool = False
    schemas: Mapping[str, Any] = field(default_factory=dict)
    tools: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    answer: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Trigger:
    """Ordinary tool use: text is free until ``text`` has been generated, from there on ``constraint`` holds.

    With ``after`` that text counts only once ``after`` has been generated, such as the end of the reasoning; with
    ``opening`` this holds only for an answer that begins with that.
    ``constraint`` is a grammar of one whole call, ``text`` included. When it is complete the text is free again,
    or, with ``once``, only the end of the answer is allowed.
    """

    text: str
    constraint: ConstraintSpec
    once: bool = False
    after: str = ""
    opening: str = ""


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """The answer leaves as a completion's tensors instead of events. ``prompt`` is the text that it begins with."""

    prompt: str = ""
    finish_reason: bool = False
    num_input_tokens: bool = False
    num_output_tokens: bool = False
    cumulative_logprob: bool = False
    logprobs: bool = False


@dataclass(frozen=True, slots=True)
class TokenBias:
    """``bias`` is added to the token's logit."""

    token: int
    bias: float


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen; by default the likeliest. :data:`heptagram_backend.sampling.RANGES` bounds the numbers.

    In the order of the steps: bias, penalties (repetition for all tokens so far, presence and frequency for generated
    ones), temperature (0: the likeliest after those), min-p, top-k (0: off), top-p, draw. Without a ``seed`` the engine
    makes one up; the same seed, taken modulo 2^64, gives the same tokens.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[TokenBias, ...] = ()
    seed: int | None = None

    @property
    def penalizes(self) -> bool:
        """What was generated changes what is likely."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    @property
    def is_greedy(self) -> bool:
        """The argmax of the masked logits, and nothing else."""
        return self.temperature == 0 and not self.penalizes and not self.logit_bias


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request that the engine can run. ``max_tokens`` already fits the context.

    ``logprobs``: deltas tell each token's log probability, and those of that many likeliest tokens. ``n`` answers are
    given; ``max_tokens``, ``stop`` and all else hold for each of them. Logs call it by ``request_id``.
    """

    prompt_ids: tuple[int, ...]
    output: OutputSpec
    model: str
    max_tokens: int
    constraint: ConstraintSpec | None = None
    trigger: Trigger | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    sampling: SamplingParams = field(default_factory=SamplingParams)
    n: int = 1
    logprobs: int | None = None
    deadline_ms: int | None = None
    num_speculative_tokens: int = 7
    drafts: DraftSource = "auto"
    stream: bool = True
    return_token_ids: bool = False
    priority: int = 0
    vocabulary: str | None = None
    completion: CompletionOutput | None = None
    request_id: str | None = None

    def to_json(self) -> str:
        """The plan without ``prompt_ids``, which travel as a tensor of their own."""
        data: dict[str, Any] = {}
        for spec in fields(self):
            value = getattr(self, spec.name)
            if spec.name != "prompt_ids":
                data[spec.name] = _plain(value)
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, prompt_ids: tuple[int, ...]) -> GenerationRequest:
        """Read a plan back.

        Raises:
            RequestError: ``plan`` is not what :meth:`to_json` writes.
        """
        request: GenerationRequest = plan_json.build(cls, plan_json.load(text), prompt_ids=prompt_ids)
        return request


def _plain(value: Any) -> Any:
    if isinstance(value, ConstraintSpec):
        return {"kind": value.kind, "source": value.source}
    if isinstance(value, OutputSpec | Trigger | CompletionOutput | SamplingParams | TokenBias):
        return {spec.name: _plain(getattr(value, spec.name)) for spec in fields(value)}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
