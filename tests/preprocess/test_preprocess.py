"""From the text of a request to a plan, over the embedded model's tokenizer."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from heptagram_backend.errors import ReleaseError, RequestError
from heptagram_backend.generation import GenerationRequest
from heptagram_backend.preprocess import Preprocessor
from heptagram_backend.release import EngineOptions, Release
from heptagram_wire import errors as codes
from heptagram_wire.errors import WireError
from tests.formats.smollm2 import reference
from tests.preprocess.asking import MODEL, body, tool

_CONTEXT = 256


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    reference().save_pretrained(folder)
    return folder


def _release(**changes: Any) -> Release:
    engine = EngineOptions(max_model_len=_CONTEXT, num_speculative_tokens=5, drafts="prompt_lookup")
    return Release(
        **{"served_model_name": MODEL, "checkpoint": "x", "format": "chatml_json", "engine": engine, **changes}
    )


@pytest.fixture(scope="module")
def preprocessor(checkpoint: Path) -> Preprocessor:
    return Preprocessor(_release(), checkpoint)


def _prepare(preprocessor: Preprocessor, **changes: Any) -> GenerationRequest:
    return preprocessor.prepare(json.dumps(body(**changes)).encode())


def _answer(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}


def _refused(preprocessor: Preprocessor, **changes: Any) -> WireError:
    with pytest.raises(RequestError) as caught:
        _prepare(preprocessor, **changes)
    return caught.value.wire


def test_a_plain_chat(preprocessor: Preprocessor) -> None:
    plan = _prepare(preprocessor, stop="x", heptagram={"deadline_ms": 9})
    expected = reference().apply_chat_template(
        body()["messages"], tokenize=True, add_generation_prompt=True, return_dict=False
    )
    assert plan.prompt_ids == tuple(expected)
    assert (plan.model, plan.stop, plan.deadline_ms) == (MODEL, ("x",), 9)
    assert (plan.constraint, plan.trigger, plan.output.parse_calls) == (None, None, False)
    assert (plan.num_speculative_tokens, plan.drafts) == (5, "prompt_lookup")
    assert GenerationRequest.from_json(plan.to_json(), plan.prompt_ids) == plan


def test_the_answer_is_capped_to_the_context(preprocessor: Preprocessor) -> None:
    plan = _prepare(preprocessor)
    assert plan.max_tokens == _CONTEXT - len(plan.prompt_ids)
    assert _prepare(preprocessor, max_tokens=2**62).max_tokens == plan.max_tokens
    assert _prepare(preprocessor, max_tokens=3).max_tokens == 3


def test_a_conversation_beyond_the_context_is_told_with_numbers(preprocessor: Preprocessor) -> None:
    wire = _refused(preprocessor, messages=[{"role": "user", "content": "word " * 300}])
    assert (wire.code, wire.param) == (codes.CONTEXT_LENGTH, "messages")
    assert str(_CONTEXT) in wire.message


def test_calls_are_constrained_and_checked_by_the_caller_s_schema(preprocessor: Preprocessor) -> None:
    parameters = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "^(a+)+$", "minLength": 1}, "b": {"pattern": "^b"}},
    }
    plan = _prepare(preprocessor, tools=[tool("f", parameters=parameters)], tool_choice="required")
    assert plan.constraint is not None
    assert plan.output.parse_calls
    checked = {"a": {"type": "string", "minLength": 1}, "b": {"pattern": "^b"}}
    assert plan.output.schemas == {"f": {"type": "object", "properties": checked}}
    ordinary = _prepare(preprocessor, tools=[tool("f", parameters=parameters)])
    assert ordinary.trigger is not None
    assert ordinary.output.schemas == {}
    forbidden = _prepare(preprocessor, tools=[tool("f", parameters=parameters)], tool_choice="none")
    assert not forbidden.output.parse_calls


def test_what_the_grammar_cannot_hold_is_checked_where_the_request_says_so(preprocessor: Preprocessor) -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}, "required": ["a"]}
    asked: dict[str, Any] = {"tools": [tool("f", parameters=parameters)], "tool_choice": "required"}
    wire = _refused(preprocessor, **asked)
    assert (wire.code, wire.param) == (codes.UNSUPPORTED_SCHEMA, "tools[0].function.parameters")
    assert wire.message.endswith(
        'or send `heptagram`: {"unenforced": "validate"}, and the finished value is checked instead'
    )
    plan = _prepare(preprocessor, **asked, heptagram={"unenforced": "validate"})
    assert plan.constraint is not None
    assert plan.output.schemas == {"f": parameters}
    assert GenerationRequest.from_json(plan.to_json(), plan.prompt_ids) == plan


def test_the_switch_is_not_told_where_it_would_not_help(preprocessor: Preprocessor) -> None:
    wire = _refused(preprocessor, response_format=_answer({"uniqueItems": True, "not": {"$ref": "http://a.b/c"}}))
    assert "unenforced" not in wire.message
    wire = _refused(
        preprocessor,
        response_format=_answer({"uniqueItems": True, "not": {"$ref": "http://a.b/c"}}),
        heptagram={"unenforced": "validate"},
    )
    assert wire.message.startswith("at #/not/$ref: 'http://a.b/c' is not inside this schema")


@pytest.mark.parametrize("mode", ["refuse", "validate"])
def test_an_answer_is_checked_by_the_caller_s_schema(preprocessor: Preprocessor, mode: str) -> None:
    schema = {"type": "array", "maxItems": 1, "uniqueItems": True}
    plan = _prepare(preprocessor, response_format=_answer(schema), heptagram={"unenforced": mode})
    assert plan.output.answer == schema
    assert _prepare(preprocessor, response_format={"type": "json_object"}).output.answer == {"type": "object"}
    calls = {"tools": [tool("f")], "tool_choice": "required"}
    assert _prepare(preprocessor, response_format=_answer(schema), **calls).output.answer is None
    assert _prepare(preprocessor).output.answer is None


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"ignore_eos": True, "tools": [tool()], "tool_choice": "required"}, codes.INVALID_VALUE, "ignore_eos"),
        ({"ignore_eos": True, "response_format": {"type": "json_object"}}, codes.INVALID_VALUE, "ignore_eos"),
        ({"stop_token_ids": [1, 10**6]}, codes.INVALID_VALUE, "stop_token_ids[1]"),
        ({"model": "other"}, codes.MODEL_NOT_FOUND, "model"),
    ],
)
def test_refused(preprocessor: Preprocessor, changes: dict[str, Any], code: str, param: str) -> None:
    wire = _refused(preprocessor, **changes)
    assert (wire.code, wire.param) == (code, param)


def test_several_requests_at_once(preprocessor: Preprocessor) -> None:
    texts = [f"question {number} <|im_end|>" for number in range(32)]
    asked = [{"messages": [{"role": "user", "content": text}]} for text in texts]
    alone = [_prepare(preprocessor, **one) for one in asked]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda one: _prepare(preprocessor, **one), asked)) == alone


def test_another_vocabulary_is_refused(checkpoint: Path) -> None:
    with pytest.raises(ReleaseError, match="vocabulary"):
        Preprocessor(_release(vocabulary="sha256:0"), checkpoint)
    with pytest.raises(ReleaseError, match="format"):
        Preprocessor(_release(format="nope"), checkpoint)


def test_no_model_and_no_grammar_library_is_loaded(checkpoint: Path) -> None:
    script = f"""
import json, sys
from pathlib import Path
from heptagram_backend.preprocess import Preprocessor
from heptagram_backend.release import Release
made = Preprocessor(Release(served_model_name="m", checkpoint="x", format="chatml_json"), Path({str(checkpoint)!r}))
made.prepare({json.dumps(body(tools=[tool(parameters={"type": "object"})], tool_choice="required"))!r})
assert not {{"torch", "xgrammar"}} & set(sys.modules), sorted(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
