"""Every limit at its edge: what is exactly as large passes, one more is refused with the limit's own code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from heptagram_backend.errors import ReleaseError, RequestError
from heptagram_backend.limits import GrammarLimits, Limits
from heptagram_backend.release import Release
from heptagram_backend.requests import RequestLimits, enforce, parse_chat_request
from heptagram_backend.requests.completions import CompletionInputs, parse_completion
from heptagram_backend.schema.limits import SchemaLimits
from heptagram_wire import errors as codes
from heptagram_wire.errors import WireError
from tests.preprocess.asking import MODEL, body, strict, tool

_REPOSITORY = Path(__file__).parents[2] / "model_repository"
_PARAM = "tools[0].function.parameters"


def release(**limits: Any) -> Release:
    return Release.parse({"served_model_name": "m", "checkpoint": "x", "format": "chatml_json", "limits": limits})


def read(raw: Any, limits: RequestLimits) -> None:
    enforce(parse_chat_request(raw if isinstance(raw, str) else json.dumps(raw), limits, MODEL), limits.schema)


def refusal(raw: Any, limits: RequestLimits) -> WireError:
    with pytest.raises(RequestError) as caught:
        read(raw, limits)
    return caught.value.wire


def _padded(size: int) -> str:
    empty = json.dumps(body())
    return empty[:-1] + " " * (size - len(empty)) + "}"


def _nested(depth: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(depth - 3):  # the request itself, its field and the object in it are levels too
        value = [value]
    return body(metadata={"a": value})


def _object(count: int, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{place}": {"type": "integer"} for place in range(count)}, **more}


def _deep(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"type": "integer"}
    for _ in range(depth - 1):
        value = {"type": "array", "items": value}
    return value


def _different_lengths(count: int) -> dict[str, Any]:
    return {"anyOf": [{"type": "string", "maxLength": 30 + place} for place in range(count)]}


def _of_bytes(size: int) -> dict[str, Any]:
    """Parameters whose JSON text, without blanks, has so many bytes."""
    parameters = strict({"type": "integer", "title": ""})["tools"][0]["function"]["parameters"]
    text = json.dumps(parameters, separators=(",", ":"))
    parameters["properties"]["x"]["title"] = "x" * (size - len(text))
    return {"tools": [tool(parameters=parameters, strict=True)], "tool_choice": "required"}


# key, value, what makes a request of a size, code, field, place in the schema, advice
_REQUEST: list[tuple[str, int, Callable[[int], Any], str, str | None, str]] = [
    ("bytes", 300, _padded, codes.REQUEST_TOO_LARGE, None, "shorten the conversation"),
    ("depth", 20, _nested, codes.REQUEST_TOO_DEEP, None, "flatten it"),
    ("tools", 3, lambda n: body(tools=[tool(f"f{i}") for i in range(n)]), codes.TOO_MANY_TOOLS, "tools", "send fewer"),
    ("choices", 3, lambda n: body(n=n), codes.TOO_MANY_CHOICES, "n", "several requests"),
    ("stops", 2, lambda n: body(stop=[f"s{i}" for i in range(n)]), codes.TOO_LARGE, "stop", "send fewer"),
]
_SCHEMA: list[tuple[str, int, Callable[[int], Any], str, str, str]] = [
    ("properties", 5, _object, codes.TOO_MANY_PROPERTIES, "#/properties/x", "group them"),
    (
        "counted_properties",
        5,
        lambda n: _object(n, minProperties=2),
        codes.TOO_MANY_PROPERTIES,
        "#/properties/x",
        "group",
    ),
    ("branches", 3, lambda n: {"anyOf": [{"const": i} for i in range(n)]}, codes.TOO_MANY_BRANCHES, "/anyOf", "fewer"),
    ("enum_values", 4, lambda n: {"enum": list(range(n))}, codes.ENUM_TOO_LARGE, "#/properties/x", "list fewer"),
    (
        "enum_characters",
        40,
        lambda n: {"enum": ["a", "x" * (n - 5)]},
        codes.ENUM_TOO_LARGE,
        "#/properties/x",
        "shorter",
    ),
    (
        "pattern_characters",
        9,
        lambda n: {"type": "string", "pattern": "a" * n},
        codes.PATTERN_TOO_LARGE,
        "/pattern",
        "",
    ),
    (
        "bounded_strings",
        3,
        _different_lengths,
        codes.REPETITION_TOO_LARGE,
        "#/properties/x/anyOf/3",
        "lower the counts",
    ),
    ("min_length", 7, lambda n: {"type": "string", "minLength": n}, codes.STRING_TOO_LONG, "/minLength", "lower it"),
    (
        "items",
        6,
        lambda n: {"type": "array", "minItems": n},
        codes.REPETITION_TOO_LARGE,
        "/minItems",
        "lower the counts",
    ),
    ("depth", 5, _deep, codes.SCHEMA_TOO_DEEP, "#/properties/x/items", "flatten it"),
]


@pytest.mark.parametrize(("key", "value", "make", "code", "param", "advice"), _REQUEST, ids=lambda item: str(item)[:20])
def test_limits_of_a_request(
    key: str, value: int, make: Callable[[int], Any], code: str, param: str | None, advice: str
) -> None:
    limits = release(request={key: value}).limits.request
    read(make(value), limits)
    found = refusal(make(value + 1), limits)
    assert (found.code, found.param) == (code, param)
    assert advice in found.message


@pytest.mark.parametrize(("key", "value", "make", "code", "where", "advice"), _SCHEMA, ids=lambda item: str(item)[:20])
def test_limits_of_a_schema(
    key: str, value: int, make: Callable[[int], Any], code: str, where: str, advice: str
) -> None:
    limits = release(schema={key: value}).limits.request
    read(body(**strict(make(value))), limits)
    found = refusal(body(**strict(make(value + 1))), limits)
    assert (found.code, found.param) == (code, _PARAM)
    assert where in found.message.partition(":")[0]
    assert advice in found.message


def test_bytes_of_all_schemas_together() -> None:
    limits = release(schema={"bytes": 400}).limits.request
    read(body(**_of_bytes(400)), limits)
    assert refusal(body(**_of_bytes(401)), limits).code == codes.SCHEMA_TOO_LARGE
    two = _of_bytes(200)["tools"] + [
        tool("g", parameters=_of_bytes(201)["tools"][0]["function"]["parameters"], strict=True)
    ]
    found = refusal(body(tools=two, tool_choice="required"), limits)
    assert (found.code, found.param) == (codes.SCHEMA_TOO_LARGE, "tools[1].function.parameters")
    read(body(tools=two), release(schema={"bytes": 401}).limits.request)
    unenforced = [{"type": "function", "function": {**entry["function"], "strict": False}} for entry in two]
    read(body(tools=unenforced), limits)  # what is not enforced costs no grammar


def test_subschemas_of_all_schemas_together() -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    used = next(count for count in range(1, 20) if _fits(body(**strict(schema)), count))
    assert used > 2
    found = refusal(body(**strict(schema)), release(schema={"nodes": used - 1}).limits.request)
    assert (found.code, found.param) == (codes.SCHEMA_TOO_LARGE, _PARAM)
    assert not _fits(body(tools=[tool(n, parameters=_object(1), strict=True) for n in "fg"], tool_choice="required"), 3)


def test_repetitions_in_repetitions_are_multiplied() -> None:
    def pattern(inner: int, outer: int) -> dict[str, Any]:
        return body(**strict({"type": "string", "pattern": f"^(?:[ab]{{{inner}}}-){{{outer}}}$"}))

    limits = release(schema={"pattern_cost": 220}).limits.request
    read(pattern(9, 10), limits)
    found = refusal(pattern(50, 50), limits)
    assert (found.code, found.param) == (codes.REPETITION_TOO_LARGE, _PARAM)
    assert "with their repetitions; lower the counts" in found.message


def _fits(request: Mapping[str, Any], nodes: int) -> bool:
    try:
        read(request, release(schema={"nodes": nodes}).limits.request)
    except RequestError:
        return False
    return True


@pytest.mark.parametrize(
    ("limits", "kind", "small", "large", "code"),
    [
        (
            {"grammar_characters": 20},
            "ebnf_grammar",
            'root ::= "aaaaaaaaa"',
            'root ::= "aaaaaaaaaa"',
            "grammar_too_large",
        ),
        ({"grammar_rules": 1}, "ebnf_grammar", 'root ::= "a"', 'root ::= a\na ::= "b"', "grammar_too_large"),
        ({"pattern_characters": 4}, "regex", "abcd", "abcde", "pattern_too_large"),
        ({"pattern_cost": 12}, "regex", "a{11}", "a{12}", "repetition_too_large"),
        ({"bytes": 18}, "json_schema", '{"type": "object"}', '{"type":"object","title":""}', "schema_too_large"),
        ({"properties": 1}, "json_schema", json.dumps(_object(1)), json.dumps(_object(2)), "too_many_properties"),
    ],
    ids=lambda item: str(item)[:24],
)
def test_limits_of_a_guide(limits: Mapping[str, int], kind: str, small: str, large: str, code: str) -> None:
    def guided(guide: str) -> None:
        tensors = {"text_input": "hi", "guided_decoding_guide_type": kind, "guided_decoding_guide": guide}
        parse_completion(CompletionInputs(tensors, {}), release(schema=dict(limits)).limits.request)

    guided(small)
    with pytest.raises(RequestError) as caught:
        guided(large)
    assert (caught.value.wire.code, caught.value.wire.param) == (code, "guided_decoding_guide")


def test_a_list_of_choices_is_limited() -> None:
    def choose(texts: list[str], **limits: int) -> None:
        options = {"structured_outputs": json.dumps({"choice": texts})}
        parse_completion(CompletionInputs({"text_input": "hi"}, options), release(schema=limits).limits.request)

    choose(["a", "b"], enum_values=2, enum_characters=2)
    for limits in ({"enum_values": 2}, {"enum_characters": 2}):
        with pytest.raises(RequestError) as caught:
            choose(["a", "b", "c"], **limits)
        assert caught.value.wire.code == codes.ENUM_TOO_LARGE


def test_longer_strings_and_arrays_are_lowered() -> None:
    limits = release(schema={"max_length": 50, "items": 7}).limits.request
    schema = {"type": "array", "maxItems": 1000, "items": {"type": "string", "maxLength": 10**9}}
    raw = json.dumps(body(**strict(schema)))
    walked = enforce(parse_chat_request(raw, limits, MODEL), limits.schema).tools[0].enforced
    assert walked is not None
    items = walked["properties"]["x"]
    assert items["maxItems"] == 7
    assert "{0,50}" in items["items"]["pattern"]


@pytest.mark.parametrize("model", ["preprocess", "generate"])
def test_the_shipped_releases_hold_every_limit_with_its_usual_value(model: str) -> None:
    path = _REPOSITORY / model / "1" / "release.yaml"
    written = yaml.safe_load(path.read_text(encoding="utf-8"))["limits"]
    assert Release.load(path.parent).limits == Limits()
    for section, kind in (("request", RequestLimits), ("schema", SchemaLimits), ("grammar", GrammarLimits)):
        assert written[section].keys() == set(kind.__dataclass_fields__) - {"schema"}


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"requests": {}}, "limits: there is no 'requests'; known are request, schema, grammar"),
        ({"schema": {"depht": 3}}, "limits.schema: there is no 'depht'; known are bytes, depth, nodes"),
        ({"request": {"schema": {}}}, "limits.request: there is no 'schema'"),
        ({"request": [1]}, "limits.request: must be a mapping"),
        ({"request": {"tools": 0}}, "limits.request.tools: must be a whole number above 0, not 0"),
        ({"request": {"tools": True}}, "limits.request.tools: must be a whole number above 0"),
        ({"request": {"tools": 1.5}}, "limits.request.tools: must be a whole number above 0"),
        ({"request": {"tools": None}}, "limits.request.tools: must be a whole number above 0"),
        ({"request": {"depth": 129}}, "limits.request.depth: must be at most 128, not 129"),
        ({"schema": {"depth": 49}}, "limits.schema.depth: must be at most 48, not 49"),
        ({"grammar": {"compile_seconds": 0}}, "limits.grammar.compile_seconds: must be a number above 0, not 0"),
        ({"grammar": {"compile_seconds": float("nan")}}, "limits.grammar.compile_seconds: must be a number above 0"),
        ({"grammar": {"compile_seconds": float("inf")}}, "limits.grammar.compile_seconds: must be at most 600"),
        (
            {"grammar": {"cache_bytes": "256MB"}},
            "limits.grammar.cache_bytes: must be a whole number above 0, not '256MB'",
        ),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(ReleaseError) as caught:
        release(**limits)
    assert message in str(caught.value)


def test_the_deepest_that_a_release_may_allow_is_read() -> None:
    limits = release(request={"depth": 128}, schema={"depth": 48}).limits.request
    read(_nested(128), limits)
    read(body(**strict(_deep(48))), limits)
    every = {"anyOf": [_deep(20)]}
    for _ in range(8):
        every = {"anyOf": [{"type": "object", "properties": {"a": every}, "required": ["a"]}]}
    read(body(**strict(every)), limits)


def test_a_fraction_of_a_second_is_a_limit() -> None:
    assert release(grammar={"compile_seconds": 0.5}).limits.grammar == GrammarLimits(compile_seconds=0.5)
