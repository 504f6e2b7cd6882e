"""``n`` answers through the gateway, to chats and to completions, streamed and whole, read by the openai package."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion

from heptagram_client.transports.base import TextPiece, TextResponse
from heptagram_wire.events import ArgumentsDelta, CallEnd, CallStart, ChoiceEnd, Event, Finish, Start, TextDelta, Usage
from tests.gateway.front import Running, data_of, running
from tests.gateway.scripted import ScriptedServer, play
from tests.gateway.test_chat_stream import encode
from tests.gateway.test_errors import error_of

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
START = Start("id", "chat", "1", 10, 50)
CALL = '{"city": "Oslo"}'
SEVERAL: list[Event] = [
    START,
    TextDelta("a"),
    CallStart(0, "call-0", "f", choice=1),
    ArgumentsDelta(0, CALL[:5], choice=1),
    TextDelta("b", (7,)),
    ArgumentsDelta(0, CALL[5:], choice=1),
    ChoiceEnd("length", 2),
    CallEnd(0, choice=1),
    ChoiceEnd("tool_calls", 9, choice=1),
    ChoiceEnd("stop", 1, choice=2),
    Finish("length", Usage(10, 12)),
]


def test_a_stream_of_several() -> None:
    """Each choice has its role once and one end, and usage comes once."""
    chunks = encode(SEVERAL, usage=True)
    usage = chunks.pop()
    assert (usage["choices"], usage["usage"]["completion_tokens"], usage["usage"]["prompt_tokens"]) == ([], 12, 10)
    found: dict[int, list[Any]] = defaultdict(list)
    for chunk in chunks:
        [choice] = chunk["choices"]
        found[choice["index"]].append(choice)
    for choices in found.values():
        assert [choice["finish_reason"] is None for choice in choices] == [True] * (len(choices) - 1) + [False]
        assert ["role" in choice["delta"] for choice in choices] == [True] + [False] * (len(choices) - 1)
    assert [found[place][-1]["finish_reason"] for place in range(3)] == ["length", "tool_calls", "stop"]
    assert "".join(choice["delta"].get("content", "") for choice in found[0]) == "ab"
    pieces = [call for choice in found[1] for call in choice["delta"].get("tool_calls", ())]
    assert "".join(piece["function"]["arguments"] for piece in pieces) == CALL


def test_the_whole_of_several(front: Running, server: ScriptedServer) -> None:
    server.script = play(SEVERAL)
    with front.openai() as client:
        answer = client.chat.completions.create(model="chat", messages=HELLO, n=3)
    ChatCompletion.model_validate(answer.model_dump(exclude_unset=True), strict=True)
    assert server.requests[0][1]["n"] == 3
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert [choice.finish_reason for choice in answer.choices] == ["length", "tool_calls", "stop"]
    assert [choice.message.content for choice in answer.choices] == ["ab", None, ""]
    [call] = answer.choices[1].message.tool_calls or []
    assert call.type == "function"
    assert call.function.arguments == CALL
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (10, 12)


def test_the_openai_stream_helper_adds_them_up(front: Running, server: ScriptedServer) -> None:
    server.script = play(*([event] for event in SEVERAL))
    with front.openai() as client, client.chat.completions.stream(model="chat", messages=HELLO, n=3) as stream:
        for _ in stream:
            pass
        choices = stream.current_completion_snapshot.choices
    assert [(choice.index, choice.finish_reason) for choice in choices] == [
        (0, "length"),
        (1, "tool_calls"),
        (2, "stop"),
    ]
    assert choices[0].message.content == "ab"


@pytest.mark.parametrize("reason", ["deadline", "cancelled"])
def test_a_cut_answer_cuts_the_request(front: Running, server: ScriptedServer, reason: Any) -> None:
    """It is an error, as for one answer, and never a finish reason."""
    ends: list[Event] = [ChoiceEnd(reason, 9, 1), ChoiceEnd(reason, 1, 2), Finish(reason, Usage(10, 12))]
    server.script = play(SEVERAL[:7], ends)
    answer = front.post(n=3)
    assert answer.status_code in (503, 504)
    assert error_of(answer)["code"] == reason
    chunks = data_of(front.post(n=3, stream=True).text)
    assert chunks.pop() == "[DONE]"
    assert chunks.pop()["error"]["code"] == reason
    assert {choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]} == {None, "length"}


async def two_each(inputs: dict[str, Any]) -> AsyncIterator[TextResponse]:
    prompt = inputs["text_input"]
    yield TextResponse((TextPiece(), TextPiece()), 3)
    yield TextResponse((TextPiece(f"<{prompt}", None, 2), TextPiece("x", "stop", 1)), 3)
    yield TextResponse((TextPiece(">", None, 1), TextPiece()), 3)
    yield TextResponse((TextPiece("", "length", 1), TextPiece()), 3, final=True)


@pytest.mark.parametrize("echo", [True, False])
def test_completions_are_numbered_prompt_by_prompt(front: Running, server: ScriptedServer, echo: bool) -> None:
    server.texts = two_each
    asked: dict[str, Any] = {"prompt": ["p", "q"], "n": 2, "echo": echo}
    answer = front.post("/v1/completions", **asked).json()
    Completion.model_validate(answer, strict=True)
    assert json.loads(server.requests[0][1]["sampling_parameters"])["n"] == 2
    begin = ["p", "q"] if echo else ["", ""]
    texts = [f"{begin[0]}<p>", f"{begin[0]}x", f"{begin[1]}<q>", f"{begin[1]}x"]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in answer["choices"]] == texts
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["length", "stop"] * 2
    assert answer["usage"] == {"prompt_tokens": 6, "completion_tokens": 10, "total_tokens": 16}
    chunks = data_of(front.post("/v1/completions", **asked, stream=True, stream_options={"include_usage": True}).text)
    assert chunks.pop() == "[DONE]"
    assert chunks.pop()["usage"] == answer["usage"]
    told = defaultdict[int, str](str)
    ends: dict[int, str] = {}
    for chunk in chunks:
        [choice] = chunk["choices"]
        assert choice["index"] not in ends, "something came behind the end of the choice"
        told[choice["index"]] += choice["text"]
        if choice["finish_reason"] is not None:
            ends[choice["index"]] = choice["finish_reason"]
    assert [told[index] for index in range(4)] == texts
    assert [ends[index] for index in range(4)] == ["length", "stop"] * 2


async def one_ends(inputs: dict[str, Any]) -> AsyncIterator[TextResponse]:
    yield TextResponse((TextPiece("a", "stop"), TextPiece("b")), 3)
    yield TextResponse((TextPiece(), TextPiece("c")), 3, final=True)


def test_a_completion_of_which_one_answer_has_no_end_is_an_error() -> None:
    with running(play(SEVERAL), one_ends) as front:
        assert front.post("/v1/completions", prompt="a", n=2).status_code == 502
