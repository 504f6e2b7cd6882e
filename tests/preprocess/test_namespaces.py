"""Namespaces of tools: in declarations, choices and past calls, in every form a caller may write them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from heptagram_backend.conversation import ChatRequest, ToolChoice
from heptagram_backend.errors import RequestError
from heptagram_backend.requests import read_chat_request
from heptagram_wire import errors as codes
from tests.preprocess.asking import LIMITS, MODEL, body, parse, refused, tool

DESCRIBED = {"name": "shop", "description": "The shop."}
Place = Callable[[dict[str, Any], Any], dict[str, Any]]


def _outside(entry: dict[str, Any], namespace: Any) -> dict[str, Any]:
    return entry | {"namespace": namespace}


def _inside(entry: dict[str, Any], namespace: Any) -> dict[str, Any]:
    return entry | {"function": entry["function"] | {"namespace": namespace}}


def _both(entry: dict[str, Any], namespace: Any) -> dict[str, Any]:
    return _outside(_inside(entry, "shop"), namespace)


def _qualified(entry: dict[str, Any], namespace: Any) -> dict[str, Any]:
    function = entry["function"]
    return _outside(entry | {"function": function | {"name": f"shop::{function['name']}"}}, namespace)


PLACES = pytest.mark.parametrize("place", [_outside, _inside, _both, _qualified])


def _call(name: str = "find", identity: str = "c") -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": "{}"}}


def _history(call: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [call]}]


@PLACES
@pytest.mark.parametrize("namespace", ["shop", {"name": "shop"}, DESCRIBED, {"name": "shop", "description": None}])
def test_one_identity_however_it_is_written(place: Place, namespace: Any) -> None:
    choice = place({"type": "function", "function": {"name": "find"}}, namespace)
    tools = [place(tool("find"), namespace), tool("find")]
    request = parse({"messages": _history(place(_call(), namespace)), "tools": tools, "tool_choice": choice})
    assert [each.name for each in request.tools] == ["shop::find", "find"]
    assert request.tool_choice == ToolChoice("required", ("shop::find",))
    assert request.messages[1].calls[0].name == "shop::find"
    allowed = {"mode": "auto", "tools": [choice]}
    choices = parse(body(tools=tools, tool_choice={"type": "allowed_tools", "allowed_tools": allowed})).tool_choice
    assert choices == ToolChoice("auto", ("shop::find",))


@PLACES
@pytest.mark.parametrize(
    ("own", "whole"),
    [({"description": "Finds."}, "The shop.\nFinds."), ({}, "The shop.\n"), ({"description": None},) * 2],
)
def test_the_description_follows(place: Place, own: dict[str, Any], whole: Any) -> None:
    found = parse(body(tools=[place(tool("find", **own), DESCRIBED)])).tools[0]
    expected = whole if isinstance(whole, str) else "The shop.\n"
    assert found.description == found.declaration["description"] == expected


def test_the_declaration_keeps_its_form() -> None:
    function = {
        "parameters": {"type": "object"},
        "strict": None,
        "name": "find",
        "description": "x",
        "namespace": "shop",
    }
    declaration = parse(body(tools=[{"type": "function", "function": function}])).tools[0].declaration
    assert json.dumps(declaration) == '{"parameters": {"type": "object"}, "name": "shop::find", "description": "x"}'


def test_an_answer_goes_back_as_it_came() -> None:
    """The name of an answered call is the qualified one; sent back without its namespace it is the same tool."""
    tools = [_outside(tool("find"), DESCRIBED)]
    name = parse(body(tools=tools)).tools[0].name
    assert parse({"messages": _history(_call(name)), "tools": tools}).messages[1].calls[0].name == name
    longest = "n" * LIMITS.name
    call = _outside(_call(longest), longest)
    twice = parse({"messages": _history(call)}).messages[1].calls[0].name
    assert parse({"messages": _history(_call(twice))}).messages[1].calls[0].name == twice == f"{longest}::{longest}"


@pytest.mark.parametrize(
    ("entry", "code", "place"),
    [
        (_both(tool("find"), "other"), codes.INVALID_VALUE, "function.namespace"),
        (_qualified(tool("find"), "other"), codes.INVALID_VALUE, "namespace"),
        (_qualified(_inside(tool("find"), {"name": "other"}), None), codes.INVALID_VALUE, "function.namespace"),
        (_outside(tool("a::find"), None) | {"namespace": ""}, codes.INVALID_VALUE, "namespace"),
        (_outside(tool("find"), {}), codes.MISSING, "namespace.name"),
        (_outside(tool("find"), {"name": ""}), codes.INVALID_VALUE, "namespace.name"),
        (_outside(tool("find"), {"name": 7}), codes.INVALID_TYPE, "namespace.name"),
        (_outside(tool("find"), {"name": "a", "tools": []}), codes.UNKNOWN_FIELD, "namespace.tools"),
        (_outside(tool("find"), {"name": "a", "description": 1}), codes.INVALID_TYPE, "namespace.description"),
        (_outside(tool("find"), False), codes.INVALID_TYPE, "namespace"),
        (_outside(tool("find"), ["a"]), codes.INVALID_TYPE, "namespace"),
        (_outside(tool("find"), "a::b"), codes.INVALID_VALUE, "namespace"),
        (_outside(tool("find"), "a:"), codes.INVALID_VALUE, "namespace"),
        (_outside(tool("find"), "a b"), codes.INVALID_VALUE, "namespace"),
        (_outside(tool("find"), "n" * 65), codes.TOO_LARGE, "namespace"),
        (tool("a::b::c"), codes.INVALID_VALUE, "function.name"),
        (tool("::find"), codes.INVALID_VALUE, "function.name"),
        (tool("shop::"), codes.INVALID_VALUE, "function.name"),
        (tool("::"), codes.INVALID_VALUE, "function.name"),
        (tool("a:::b"), codes.INVALID_VALUE, "function.name"),
        (tool(""), codes.INVALID_VALUE, "function.name"),
    ],
)
def test_what_is_refused(entry: dict[str, Any], code: str, place: str) -> None:
    """In a tool, in a past call and in a choice alike, each naming its own place."""
    wire = refused(body(tools=[entry]))
    assert (wire.code, wire.param) == (code, f"tools[0].{place}")
    call = entry | {"id": "c", "function": entry["function"] | {"arguments": "{}"}}
    wire = refused({"messages": _history(call)})
    assert (wire.code, wire.param) == (code, f"messages[1].tool_calls[0].{place}")
    wire = refused(body(tools=[tool("find")], tool_choice=entry))
    assert (wire.code, wire.param) == (code, f"tool_choice.{place}")


def test_one_description_of_a_namespace_in_one_tool() -> None:
    entry = _outside(_inside(tool("find"), DESCRIBED), {"name": "shop", "description": "Another."})
    assert refused(body(tools=[entry])).param == "tools[0].function.namespace"


@PLACES
def test_one_name_is_declared_once(place: Place) -> None:
    wire = refused(body(tools=[tool("shop::find"), place(tool("find"), "shop")]))
    assert (wire.code, wire.param) == (codes.INVALID_VALUE, "tools[1].function.name")


@pytest.mark.parametrize("name", ["find", "other::find", "shop::other", "shop"])
def test_a_choice_names_a_tool_in_full(name: str) -> None:
    choice = {"type": "function", "function": {"name": name}}
    assert refused(body(tools=[_outside(tool("find"), "shop")], tool_choice=choice)).param == "tool_choice"


@pytest.mark.parametrize("made", [list, tuple, iter, lambda entries: (entry for entry in entries)])
def test_iterables_are_lists_and_stay_as_they_are(made: Callable[[list[Any]], Iterable[Any]]) -> None:
    tools = [_outside(tool("find"), DESCRIBED), _inside(tool("sell"), "shop")]
    messages = _history(_outside(_call(), "shop"))
    before = copy.deepcopy((tools, messages))
    inner = [messages[0], messages[1] | {"tool_calls": made(messages[1]["tool_calls"])}]
    inner[0] = {"role": "user", "content": made([{"type": "text", "text": "hi"}])}
    request = read_chat_request({"messages": made(inner), "tools": made(tools)}, LIMITS, MODEL)
    assert [each.name for each in request.tools] == ["shop::find", "shop::sell"]
    assert request.messages[1].calls[0].name == "shop::find"
    assert request.messages[0].content == "hi"
    assert (tools, messages) == before


@pytest.mark.parametrize("entries", ["find", b"find", bytearray(b"find"), {"find": 1}, 7, True])
@pytest.mark.parametrize("key", ["tools", "messages"])
def test_text_and_mappings_are_no_lists(key: str, entries: Any) -> None:
    with pytest.raises(RequestError) as caught:
        _read({**body(), key: entries})
    assert (caught.value.wire.code, caught.value.wire.param) == (codes.INVALID_TYPE, key)


def test_an_endless_iterable_ends() -> None:
    with pytest.raises(RequestError) as caught:
        _read(body(tools=(tool(f"f{number}") for number in iter(lambda: 0, 1))))
    assert (caught.value.wire.code, caught.value.wire.param) == (codes.TOO_MANY_TOOLS, "tools")


def _read(data: dict[str, Any]) -> ChatRequest:
    return read_chat_request(data, LIMITS, MODEL)
