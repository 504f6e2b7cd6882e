"""What people hit elsewhere with ``tool_choice``: the right answer in every format, whatever the model wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from heptagram_gateway.chat.message import completion_of
from heptagram_wire import errors as codes
from heptagram_wire.events import CallEnd, CallStart, Event, Failure, TextDelta
from tests.cases.kits import FORMATS, kit
from tests.cases.writing import OPENINGS, written
from tests.gateway.test_chat_stream import ENVELOPE, encode

EACH: Final = pytest.mark.parametrize("name", FORMATS)


def tool(name: str, parameter: str, **function: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {parameter: {"type": "string"}},
        "required": [parameter],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": schema, **function}}


TOOLS: Final = [tool("get_weather", "city"), tool("get_time", "tz")]
STRICT: Final = [tool("get_weather", "city", strict=True), tool("get_time", "tz", strict=True)]
WEATHER: Final = ("get_weather", {"city": "Oslo"})
TIME: Final = ("get_time", {"tz": "CET"})
NAMED: Final = {"type": "function", "function": {"name": "get_weather"}}


def ask(choice: Any = None, tools: Any = None, **fields: Any) -> dict[str, Any]:
    given = {"tools": tools, "tool_choice": choice}
    body = {"messages": [{"role": "user", "content": "Weather in Oslo?"}], "temperature": 0, **fields}
    return {**body, **{key: value for key, value in given.items() if value is not None}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def begun(events: Sequence[Event]) -> list[str]:
    return [event.name for event in events if isinstance(event, CallStart)]


def ended(events: Sequence[Event]) -> int:
    return sum(isinstance(event, CallEnd) for event in events)


def text(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def generated(name: str, events: Sequence[Event]) -> str:
    """All that the model wrote, told or not."""
    tokens = [token for event in events for token in getattr(event, "token_ids", None) or ()]
    return b"".join(kit(name).token_bytes[token] or b"" for token in tokens).decode()


def shows_markup(name: str, answer: str) -> bool:
    """Llama's is an object at the beginning, or behind a tag; anywhere else it is text like any other."""
    if name == "llama3_json":
        return answer.lstrip().startswith(OPENINGS[name]) or "<|python_tag|>" in answer
    return OPENINGS[name] in answer


def reason(events: Sequence[Event]) -> str:
    """The reason, the same in the whole answer and in the stream, and ``tool_calls`` just where there are some."""
    [choice] = completion_of(ENVELOPE, events)["choices"]
    reasons = [each["finish_reason"] for chunk in encode(events) for each in chunk["choices"] if each["finish_reason"]]
    assert reasons == [choice["finish_reason"]]
    if choice["finish_reason"] != "length":
        assert (choice["finish_reason"] == "tool_calls") == bool(choice["message"].get("tool_calls"))
    return str(choice["finish_reason"])


@EACH
@pytest.mark.parametrize("tools", [None, []])
@pytest.mark.parametrize("choice", ["required", NAMED, allowed("required", "get_weather")])
def test_a_call_of_no_tool_is_refused_before_anything_is_generated(name: str, tools: Any, choice: Any) -> None:
    """https://github.com/vllm-project/vllm/pull/21052"""
    for stream in (True, False):
        wire = kit(name).refusal(ask(choice, tools, stream=stream))
        assert (wire.code, wire.param) == (codes.INVALID_VALUE, "tool_choice")


@EACH
@pytest.mark.parametrize("tools", [None, []])
@pytest.mark.parametrize("choice", ["auto", "none", None])
def test_without_tools_and_without_a_demand_it_is_a_plain_chat(name: str, tools: Any, choice: Any) -> None:
    """https://github.com/vllm-project/vllm/pull/21052: of the two documented answers the lenient one."""
    plan = kit(name).plan(ask(choice, tools))
    assert (plan.constraint, plan.trigger, plan.output.parse_calls) == (None, None, False)


@EACH
@pytest.mark.parametrize(
    ("choice", "tools"), [("required", TOOLS), ("required", STRICT), ("auto", STRICT), ("auto", TOOLS)]
)
def test_one_call_is_one_call_and_generation_ends_behind_it(name: str, choice: str, tools: Any) -> None:
    """https://github.com/sgl-project/sglang/issues/9696: no further one is generated and hidden."""
    both = written(name, WEATHER, TIME)
    single = kit(name).answer(ask(choice, tools, parallel_tool_calls=False, return_token_ids=True), both)
    assert (begun(single), ended(single), reason(single)) == (["get_weather"], 1, "tool_calls")
    assert generated(name, single) == written(name, WEATHER)
    several = kit(name).answer(ask(choice, tools), both)
    assert (begun(several), ended(several), reason(several)) == (["get_weather", "get_time"], 2, "tool_calls")
    assert len({event.id for event in several if isinstance(event, CallStart)}) == 2


@EACH
@pytest.mark.parametrize("tools", [TOOLS, STRICT])
def test_none_is_none(name: str, tools: Any) -> None:
    """https://github.com/Blaizzy/mlx-vlm/issues/1045: neither a call nor the markup of one, however it is wanted."""
    for wanted in (written(name, WEATHER), written(name, WEATHER, text="Well.")):
        events = kit(name).answer(ask("none", tools, max_tokens=40), wanted)
        assert not begun(events)
        assert reason(events) in ("stop", "length")
        assert not shows_markup(name, text(events))
        assert "tool_calls" not in completion_of(ENVELOPE, events)["choices"][0]["message"]


@EACH
@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_model_that_refuses_to_call_is_held_to_it(name: str, choice: Any) -> None:
    """https://github.com/vllm-project/vllm/issues/53255: no `tool_calls` beside an empty list."""
    events = kit(name).answer(ask(choice, TOOLS, max_tokens=60), "I cannot do that.")
    assert not text(events)
    assert reason(events) == ("tool_calls" if ended(events) else "length")
    assert ended(events) == len(begun(events)) or reason(events) == "length"


@EACH
def test_a_malformed_call_is_text_and_its_reason_stop(name: str) -> None:
    """https://github.com/vllm-project/vllm/issues/53255: where a caller lets the model write what it likes."""
    free = ask("auto", TOOLS, heptagram={"tool_markup": "free"})
    whole = written(name, WEATHER)
    for wanted in (
        "I cannot do that.",
        whole.replace("get_weather", "", 1),
        whole[: len(whole) // 3],
        whole[: len(whole) * 2 // 3],
    ):
        events = kit(name).answer(free, wanted)
        assert not ended(events)
        assert isinstance(events[-1], Failure) or reason(events) == "stop"


@EACH
@pytest.mark.parametrize("tools", [TOOLS, STRICT])
def test_allowed_tools(name: str, tools: Any) -> None:
    """https://github.com/can1357/llm-git/issues/13: the others are never called, whatever the model wants."""
    held = kit(name).answer(ask(allowed("required", "get_time"), tools), written(name, TIME))
    assert (begun(held), reason(held)) == (["get_time"], "tool_calls")
    for mode in ("required", "auto"):
        wanted = written(name, WEATHER)
        assert "get_weather" not in begun(kit(name).answer(ask(allowed(mode, "get_time"), tools), wanted))
    talking = kit(name).answer(ask(allowed("auto", "get_time"), tools), "It rains.")
    assert (text(talking), reason(talking)) == ("It rains.", "stop")


@EACH
@pytest.mark.parametrize("names", [(), ("ghost",), ("get_time", "ghost")])
def test_allowed_tools_that_are_not_there(name: str, names: tuple[str, ...]) -> None:
    """https://github.com/can1357/llm-git/issues/13"""
    for mode in ("required", "auto"):
        wire = kit(name).refusal(ask(allowed(mode, *names), TOOLS))
        assert (wire.code, (wire.param or "").partition(".")[0]) == (codes.INVALID_VALUE, "tool_choice")


@EACH
@pytest.mark.parametrize("choice", ["auto", "required", NAMED, allowed("auto", "get_weather")])
def test_the_reason_is_the_same_for_every_choice_streamed_and_whole(name: str, choice: Any) -> None:
    """https://github.com/vllm-project/vllm/pull/25054: `tool_calls` wherever a tool was called."""
    assert reason(kit(name).answer(ask(choice, TOOLS), written(name, WEATHER))) == "tool_calls"
    cut = kit(name).answer(ask(choice, TOOLS, max_tokens=6), written(name, WEATHER))
    assert (reason(cut), ended(cut)) == ("length", 0)
