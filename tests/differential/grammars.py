"""Who is asked whether a value can be generated: our grammars over real vocabularies, and llguidance beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import llguidance
import numpy as np

from heptagram_backend.constraint import ConstraintSpec, Grammar
from heptagram_backend.conversation import ToolChoice
from heptagram_backend.errors import RequestError
from heptagram_backend.formats.base import AnswerBounds
from heptagram_backend.formats.deepseek_v4 import DeepSeekV4
from heptagram_backend.formats.json_value import json_node
from heptagram_backend.generation import OutputSpec
from heptagram_backend.masks import words_for
from heptagram_backend.schema import walk, walk_parameters
from tests.formats import smollm2
from tests.formats.deepseek import grammar as deepseek
from tests.formats.deepseek.test_walks import rendered
from tests.formats.deepseek.tokenizers import tokenizer
from tests.formats.samples import call, parse, request, tool

Asked = Callable[[Any], bool | None]
"""Can this value be generated? ``None`` where the form has no way to write it down."""


def walked(schema: Any, *, parameters: bool) -> dict[str, Any]:
    """The enforced form of a schema.

    Raises:
        RequestError: it is refused.
    """
    return walk_parameters(schema, "p") if parameters else walk(schema, "p")


def as_json(enforced: dict[str, Any]) -> Asked:
    """Canonical JSON over SmolLM2's tokens, as a response format is held.

    Raises:
        RequestError: it is refused.
    """
    tag = {"type": "structural_tag", "format": json_node(enforced, AnswerBounds())}
    spec = ConstraintSpec.structural_tag(tag)
    smollm2.factory().compile(spec)

    def asked(value: Any) -> bool | None:
        tokens = smollm2.encode(canonical(value))
        return _generates(smollm2.factory().matcher(spec), tokens, canonical(value), smollm2.token_bytes(), smollm2.EOS)

    return asked


def as_dsml(enforced: dict[str, Any]) -> Asked:
    """A DSML call over DeepSeek's 129,280 tokens. What is accepted is read back, and must be the same arguments.

    Raises:
        RequestError: the markup cannot carry it.
    """
    asking = request(tools=(tool("f", enforced),), tool_choice=ToolChoice("required"), parallel_tool_calls=False)
    spec = DeepSeekV4().constrain(asking).constraint
    assert spec is not None
    deepseek.factory().compile(spec)

    def asked(value: Any) -> bool | None:
        if not isinstance(value, dict):
            return None
        text = rendered("v4", "f", canonical(value))
        read = parse(DeepSeekV4().parser(OutputSpec("deepseek_v4", parse_calls=True)), text)
        whole = read == call("f", canonical(value))
        tokens = tokenizer("v4").encode(text)
        accepted = _generates(deepseek.factory().matcher(spec), tokens, text, deepseek.token_bytes(), deepseek.EOS)
        assert whole or not accepted, f"accepted, but not read back: {text!r}"
        return accepted if whole else None

    return asked


def by_llguidance(schema: Any) -> Asked:
    """llguidance on the caller's own schema, with our separators.

    Raises:
        RequestError: llguidance refuses the schema; the message is its own.
    """
    whole = json.dumps({"allOf": [schema]} if isinstance(schema, bool) else schema)
    source = llguidance.LLMatcher.grammar_from_json_schema(
        whole, overrides={"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    )
    matcher = llguidance.LLMatcher(_BYTES, source, log_level=0)
    if matcher.is_error():
        raise RequestError(matcher.get_error(), code="llguidance")

    def asked(value: Any) -> bool | None:
        matcher.reset()
        text = canonical(value).encode()
        return bool(matcher.try_consume_tokens(list(text)) == len(text) and matcher.is_accepting())

    return asked


def canonical(value: Any) -> str:
    """JSON with one blank behind ``,`` and ``:`` and raw characters."""
    return json.dumps(value, ensure_ascii=False)


def _generates(
    matcher: Grammar, tokens: Sequence[int], text: str, pieces: Sequence[bytes | None], end: int
) -> bool | None:
    """Are these tokens allowed one by one, and the end behind them? Mask and matcher must say the same.

    ``None`` where the tokens are not the text: SmolLM2's vocabulary lacks some bytes of rare planes.
    """
    row = np.zeros(words_for(len(pieces)), np.int32)
    try:
        if b"".join(pieces[token] or b"" for token in tokens) != text.encode():
            return None
        for token in (*tokens, end):
            allowed = not matcher.fill(row) or bool(row[token // 32] >> (token % 32) & 1)
            assert matcher.accept(token) == allowed, f"mask and matcher disagree on {token} of {text!r}"
            if not allowed:
                return False
        return True
    finally:
        matcher.close()


_BYTES = llguidance.LLTokenizer("byte")
