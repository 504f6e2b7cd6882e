"""Nineteen live requests, thirteen usual ones and six edges, each asked of both models on the real server.

The list is the one that constrained tool calls of DeepSeek V4 were once accepted with on another engine. There the
model was the real one. Here SmolLM2 means what it says, and a DeepSeek V4 of random weights means nothing at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import httpx2
import pytest
from jsonschema import Draft202012Validator

from heptagram_client import ChatMessage, Client, RequestRefusedError, fold
from heptagram_wire import errors as codes
from heptagram_wire import tensors as names
from heptagram_wire.codec import decode_event
from heptagram_wire.errors import parse_error
from heptagram_wire.events import ReasoningDelta, TextDelta
from tests.server.gateway import running_gateway
from tests.server.served import Served

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

_FAULTS: Final = re.compile(r"^[EF]\d{4} .*|.*\b(?:ERROR|Traceback)\b.*", re.MULTILINE)


def tool(name: str, parameter: str) -> dict[str, Any]:
    text = {parameter: {"type": "string"}}
    schema = {"type": "object", "properties": text, "required": [parameter], "additionalProperties": False}
    function = {"name": name, "description": f"A tool that takes a {parameter}", "parameters": schema, "strict": True}
    return {"type": "function", "function": function}


TOOLS: Final = [tool("shell", "command"), tool("get_time", "tz")]
SCHEMAS: Final = {each["function"]["name"]: each["function"]["parameters"] for each in TOOLS}
SHELL: Final = {"type": "function", "function": {"name": "shell"}}
TWICE: Final = ("Run ls, then run pwd. Make two calls.", "Call shell twice: once with ls and once with pwd.")


def ask(text: str = "Show the current directory.", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 200, **fields}


def with_tools(choice: Any, text: str = "Show the current directory.", **fields: Any) -> dict[str, Any]:
    return ask(text, **{"tools": TOOLS, "tool_choice": choice, **fields})


REQUIRED: Final = with_tools("required")
NAMED: Final = with_tools(SHELL)
AUTO: Final = with_tools("auto", max_tokens=48)
CMD: Final = with_tools(SHELL, 'Call shell with {"cmd": "ls"}. The argument must be named cmd, never command.')
THINK: Final = with_tools("required", chat_template_kwargs={"thinking": True}, max_tokens=400)
CHAT: Final = ask("Who are you?", max_tokens=24)
UNIQUE: Final = {"type": "object", "properties": {"x": {"type": "array", "uniqueItems": True}}}
ODD: Final = {"type": "function", "function": {"name": "odd", "strict": True, "parameters": UNIQUE}}


def calls(message: ChatMessage) -> set[str]:
    """The names of what was called; there are calls and nothing else, each is ended and valid."""
    assert (message.finish_reason, message.content) == ("tool_calls", None)
    for call in message.tool_calls:
        Draft202012Validator(SCHEMAS[call.name]).validate(call.parse_arguments())
    return {call.name for call in message.tool_calls}


def shell(message: ChatMessage) -> None:
    assert calls(message) == {"shell"}


def talk(message: ChatMessage) -> None:
    assert message.finish_reason in ("stop", "length")
    assert message.content
    assert not message.tool_calls


def talk_beside_tools(message: ChatMessage) -> None:
    """The markup of a call is not text either; without tools it would be nothing but text."""
    talk(message)
    assert not any(markup in (message.content or "") for markup in ("DSML", "<tool_call>"))


def either(message: ChatMessage) -> None:
    (calls if message.finish_reason == "tool_calls" else talk_beside_tools)(message)


def cut(message: ChatMessage) -> None:
    """No call that a program may run."""
    assert message.finish_reason == "length"
    assert not any(call.complete for call in message.tool_calls)
    assert not message.to_message().get("tool_calls")


def at_once(served: Served, request: dict[str, Any]) -> ChatMessage:
    """By one response, over HTTP."""
    answer = served.generate(json.dumps({**request, "stream": False}))
    assert answer.status == 200, answer.text
    return fold(decode_event(text) for text in answer.messages[0][names.EVENTS])


def in_pieces(served: Served, request: dict[str, Any]) -> ChatMessage:
    with Client(served.grpc_url) as client:
        return client.complete(request)


Check = Callable[[Served], object]


def whole(request: dict[str, Any], judge: Callable[[ChatMessage], object]) -> Check:
    return lambda served: judge(at_once(served, request))


def streamed(request: dict[str, Any], judge: Callable[[ChatMessage], object]) -> Check:
    return lambda served: judge(in_pieces(served, request))


def twice(served: Served) -> None:
    """The first prompt that gets two calls: a model decides how many it makes."""
    for prompt in TWICE:
        message = in_pieces(served, with_tools("required", prompt, max_tokens=300))
        if message.finish_reason == "tool_calls" and len(message.tool_calls) > 1:
            break
    calls(message)
    assert len({call.id for call in message.tool_calls}) == len(message.tool_calls) > 1


def reasoned(served: Served) -> None:
    """Reasoning in pieces, then the call, in this order."""
    with Client(served.grpc_url) as client, client.stream(THINK) as stream:
        events = list(stream)
    kinds = [type(event).__name__ for event in events]
    assert kinds.index("ReasoningDelta") < kinds.index("CallStart")
    assert not [event for event in events[kinds.index("CallStart") :] if isinstance(event, ReasoningDelta)]
    message = fold(events)
    calls(message)
    assert "DSML" not in (message.reasoning or "")


def completed(stream: bool) -> Check:
    def check(served: Served) -> None:
        body = {names.TEXT_INPUT: "The capital of France is", "max_tokens": 8, "return_num_output_tokens": True}
        way = "generate_stream" if stream else "generate"
        answer = served.post(f"models/{names.COMPLETIONS}/{way}", {**body, names.STREAM: stream})
        assert answer.status == 200
        assert sum(message[names.NUM_OUTPUT_TOKENS] for message in answer.messages) == 8
        assert len(answer.messages) > 1 or not stream
        assert "".join(message[names.TEXT_OUTPUT] for message in answer.messages)

    return check


def refused(request: dict[str, Any], code: str, place: str) -> Check:
    """By a status, and by an error in place of the stream's first event."""

    def check(served: Served) -> None:
        answer = served.generate(json.dumps(request), stream=True)
        told = parse_error(answer.error)
        assert told is not None
        assert (answer.status, told.code, told.param) == (400, code, place)
        with Client(served.grpc_url) as client, pytest.raises(RequestRefusedError) as caught:
            next(iter(client.stream(request)))
        assert (caught.value.code, caught.value.param) == (code, place)

    return check


def together(served: Served) -> None:
    """Each alone, then all at the same time: the same answers."""
    asked = [NAMED, CHAT]
    alone = [in_pieces(served, request) for request in asked]
    with ThreadPoolExecutor(8) as pool:
        company = list(pool.map(lambda request: in_pieces(served, request), asked * 2))
    assert [said(message) for message in company] == [said(message) for message in alone] * 2


def said(message: ChatMessage) -> tuple[Any, ...]:
    return message.finish_reason, message.content, [(call.name, call.arguments) for call in message.tool_calls]


def continued(served: Served) -> None:
    """A call, its result, one more call, its result, an answer."""
    request = NAMED
    for _ in range(2):
        message = in_pieces(served, request)
        shell(message)
        results = [{"role": "tool", "tool_call_id": call.id, "content": "/home/ann"} for call in message.tool_calls]
        request = {**request, "messages": [*request["messages"], message.to_message(), *results]}
    talk_beside_tools(in_pieces(served, {**request, "tool_choice": "none", "max_tokens": 24}))


def cancelled(served: Served) -> None:
    """In the middle of a text; what comes behind it is healthy."""
    before = served.settle()
    endless = ask("Count from one to one thousand in words.", max_tokens=1500, ignore_eos=True)
    with Client(served.grpc_url) as client, client.stream(endless) as stream:
        assert any(isinstance(event, TextDelta) for event in stream)
    served.settle(5.0)
    served.grown("requests_cancelled_total", before, 1)
    calls(in_pieces(served, REQUIRED))


LIVE: Final[dict[str, Check]] = {
    "required": whole(REQUIRED, calls),
    "required, streamed": streamed(REQUIRED, calls),
    "named": whole(NAMED, shell),
    "named, streamed": streamed(NAMED, shell),
    "strict auto": whole(AUTO, either),
    "strict auto, streamed": streamed(AUTO, either),
    "told to write cmd": whole(CMD, shell),
    "two calls": twice,
    "reasoning, then a call": reasoned,
    "chat": whole(CHAT, talk),
    "chat, streamed": streamed(CHAT, talk),
    "completion": completed(stream=False),
    "completion, streamed": completed(stream=True),
    "a request that is refused": refused(with_tools("required", tools=[]), codes.INVALID_VALUE, "tool_choice"),
    "a schema that is refused": refused(
        with_tools("required", tools=[ODD]), codes.UNSUPPORTED_SCHEMA, "tools[0].function.parameters"
    ),
    "all at once": together,
    "cut by its length": streamed(with_tools(SHELL, max_tokens=8), cut),
    "a result goes back": continued,
    "cancelled, then strict": cancelled,
}
_MODELS: Final = {"deepseek": set(LIVE), "shipped": set(LIVE) - {"reasoning, then a call"}}  # SmolLM2 does not reason


@dataclass(frozen=True, slots=True)
class Watched:
    """A server, and how it was before these tests."""

    served: Served
    before: dict[str, float]
    logged: int

    def faults(self) -> list[str]:
        """What its log reports since then."""
        text = self.served.process.log.read_bytes()[self.logged :].decode(errors="replace")
        return _FAULTS.findall(text)


@pytest.fixture(scope="module")
def watched() -> dict[str, Watched]:
    """Each server from its first test on."""
    return {}


@pytest.fixture(params=list(_MODELS))
def model(request: pytest.FixtureRequest, watched: dict[str, Watched]) -> Watched:
    served: Served = request.getfixturevalue(request.param)
    if request.param not in watched:
        watched[request.param] = Watched(served, served.settle(), served.process.log.stat().st_size)
    return watched[request.param]


@pytest.mark.parametrize(
    ("model", "name"),
    [(model, name) for model in _MODELS for name in LIVE if name in _MODELS[model]],
    indirect=["model"],
)
def test_a_live_request(model: Watched, name: str) -> None:
    LIVE[name](model.served)


@pytest.fixture
def front(model: Watched) -> Iterator[httpx2.Client]:
    with (
        running_gateway(model.served.grpc_url, "--served-model-name", "dsv4-flash-dspark-w8a8") as gateway,
        httpx2.Client(base_url=gateway.url, timeout=120, verify=False) as client,
    ):
        yield client


# The two requests of that system's guide, the second one as the guide says: "auto", and strict left out.
CONSTRAINED: Final = """{
    "model": "dsv4-flash-dspark-w8a8",
    "messages": [{"role":"user","content":"Show the current directory."}],
    "tools": [{"type":"function","function":{
      "name":"shell",
      "description":"Run a shell command",
      "strict":true,
      "parameters":{
        "type":"object",
        "properties":{"command":{"type":"string"}},
        "required":["command"],
        "additionalProperties":false
      }
    }}],
    "tool_choice":"required",
    "temperature":0,
    "max_tokens":256
  }"""
ORDINARY: Final = CONSTRAINED.replace('"required",\n    "temp', '"auto",\n    "temp').replace('"strict":true,\n', "")


def guided(front: httpx2.Client, body: str) -> tuple[str, dict[str, Any]]:
    answer = front.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200, answer.text
    [choice] = answer.json()["choices"]
    return choice["finish_reason"], choice["message"]


def test_the_guides_requests(front: httpx2.Client) -> None:
    """The ordinary one may talk or call; a call is one of the declared tool, with any object."""
    reason, message = guided(front, CONSTRAINED)
    assert reason == "tool_calls"
    for call in message["tool_calls"]:
        assert call["function"]["name"] == "shell"
        Draft202012Validator(SCHEMAS["shell"]).validate(json.loads(call["function"]["arguments"]))
    assert "strict" not in ORDINARY
    reason, message = guided(front, ORDINARY)
    called = message.get("tool_calls", ())
    assert (reason == "tool_calls") == bool(called)
    assert all(call["function"]["name"] == "shell" for call in called)
    assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in called)
    assert called or message["content"]


def test_afterwards_nothing_is_left_and_nothing_was_reported(model: Watched) -> None:
    after = model.served.settle()
    assert after["generation_tokens_total"] > model.before["generation_tokens_total"]
    assert after["invalid_outputs_total"] == model.before["invalid_outputs_total"]
    assert not model.faults()
