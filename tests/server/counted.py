"""The real engine over a scripted target, so that what a request costs is known in advance.

A request is the JSON of :class:`Asked`, or a chat whose last message is that; its answer is its text.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.engine import EngineLimits
from heptagram_backend.engine_api import Engine
from heptagram_backend.engines.parts import assemble
from heptagram_backend.errors import RequestError
from heptagram_backend.generation import GenerationRequest, OutputSpec
from heptagram_backend.release import EngineOptions
from heptagram_backend.requests.completions import CompletionInputs
from heptagram_backend.targets.scripted import ScriptedTarget
from heptagram_wire import errors as codes
from tests.engine.harness import EOS, tiny_encode, tiny_parts

END = 0  # token behind the text of a prompt
SLOTS, QUEUE = 2, 1
_LENGTH = 4096
_HELD, _BROKEN = map(ord, "hb")
_HELD_S = 0.02


@dataclass(frozen=True, slots=True)
class Asked:
    """``h`` in the text makes its prompt slow to write, 20 ms for each 8 tokens; ``b`` breaks the forward."""

    text: str
    max_tokens: int = 64
    drafts: str = "none"  # "right", "wrong": seven a step
    grammar: str | None = None
    object: bool = False  # the answer must be a JSON object
    deadline_ms: int | None = None


class CountedTarget(ScriptedTarget):
    def prefill(self, *, slot: int, start: int, token_ids: Sequence[int]) -> None:
        if _HELD in token_ids:
            time.sleep(_HELD_S)
        super().prefill(slot=slot, start=start, token_ids=token_ids)


def answer(tokens: Sequence[int]) -> int:
    """The text before END, once more; then the end."""
    text = tokens[: tokens.index(END)]
    if _BROKEN in text:
        raise ZeroDivisionError("as the request asks for")
    place = len(tokens) - len(text) - 1
    return text[place] if place < len(text) else EOS


def right(tokens: Sequence[int], limit: int) -> Sequence[int]:
    text = tokens[: tokens.index(END)]
    place = len(tokens) - len(text) - 1
    return text[place : place + limit]


def wrong(tokens: Sequence[int], limit: int) -> Sequence[int]:
    return [ord("z")] * limit


def open_engine(version: str) -> Engine:
    target = CountedTarget(answer, vocab_size=288, num_slots=SLOTS, max_model_len=_LENGTH)
    parts = tiny_parts(target, scripts={"right": right, "wrong": wrong}, options=EngineOptions(mask_pool_rows=128))
    return assemble(parts, EngineLimits(version, QUEUE, 60_000, "tiny"))


class CountedPreprocessor:
    def prepare(self, raw: bytes) -> GenerationRequest:
        try:
            data = json.loads(raw)
            asked = Asked(**(json.loads(data["messages"][-1]["content"]) if "messages" in data else data))
        except (ValueError, TypeError) as error:
            raise RequestError(str(error), code=codes.INVALID_JSON, param="request") from error
        schema: Any = {"type": "object"} if asked.object else None
        return GenerationRequest(
            (*tiny_encode(asked.text), END),
            OutputSpec("chatml_json", answer=schema),
            "counted",
            max_tokens=asked.max_tokens,
            constraint=ConstraintSpec("ebnf", asked.grammar) if asked.grammar else None,
            deadline_ms=asked.deadline_ms,
            drafts=asked.drafts,
        )

    def complete(self, inputs: CompletionInputs) -> GenerationRequest:
        raise AssertionError("nobody asks for that")
