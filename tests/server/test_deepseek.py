"""DeepSeek V4 on the real server: real architecture and tokenizer, random weights, so that nothing is well meant.

What a model that knows nothing answers is still valid in every mode, and speculation changes no token of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from heptagram_client import ChatMessage, Client, fold
from heptagram_wire.events import Event, Finish, ReasoningDelta, TextDelta
from tests.server.served import Served

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

SCHEMAS: Final[dict[str, Any]] = {
    "shell": {
        "type": "object",
        "properties": {"command": {"type": "string", "minLength": 2}},
        "required": ["command"],
        "additionalProperties": False,
    },
    "search": {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 50},
            "kind": {"enum": ["file", "text"]},
        },
        "required": ["query", "limit"],
        "additionalProperties": False,
    },
}
TOOLS: Final = [
    {"type": "function", "function": {"name": name, "description": "A tool.", "strict": True, "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
SEARCH: Final = {"type": "function", "function": {"name": "search"}}
RECORD: Final = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "open": {"type": "boolean"}},
    "required": ["name", "open"],
    "additionalProperties": False,
}
PROMPTS: Final = ("List the files.", "Run ls, then pwd.", "Hello!", "Find cats.", "Who are you?", "Count to ten.")


def ask(text: str, *, thinking: bool = False, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    mode = {"chat_template_kwargs": {"thinking": True}} if thinking else {}
    return {"messages": messages, "max_tokens": 600, "return_token_ids": True, **mode, **fields}


def with_tools(text: str, choice: Any, **fields: Any) -> dict[str, Any]:
    return ask(text, tools=TOOLS, tool_choice=choice, **fields)


ASKED: Final[dict[str, dict[str, Any]]] = {
    "required": with_tools("List the files.", "required"),
    "required-thinking": with_tools("Find cats.", "required", thinking=True),
    "named": with_tools("Hello!", SEARCH),
    "named-thinking": with_tools("Find cats.", SEARCH, thinking=True),
    "one-call": with_tools("Run ls, then pwd.", "required", parallel_tool_calls=False),
    "auto": with_tools("Run ls, then pwd.", "auto"),
    "auto-thinking": with_tools("List the files.", "auto", thinking=True),
    "none": with_tools("Hello!", "none"),
    "none-thinking": with_tools("Find cats.", "none", thinking=True),
    "response-format": ask(
        "A record.", response_format={"type": "json_schema", "json_schema": {"name": "record", "schema": RECORD}}
    ),
}


def play(served: Served, request: dict[str, Any], **fields: Any) -> list[Event]:
    with Client(served.grpc_url) as client, client.stream({**request, **fields}) as stream:
        return list(stream)


def play_all(served: Served, requests: Sequence[dict[str, Any]]) -> list[list[Event]]:
    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(lambda request: play(served, request), requests))


@pytest.fixture(scope="module")
def answers(deepseek: Served) -> dict[str, list[Event]]:
    """All of them at once."""
    return dict(zip(ASKED, play_all(deepseek, list(ASKED.values())), strict=True))


def judged(events: Sequence[Event], *, thinking: bool) -> ChatMessage:
    """The message, once it is seen to be ended and valid."""
    message = fold(events)
    assert message.finish_reason == ("tool_calls" if message.tool_calls else "stop")
    for call in message.tool_calls:
        Draft202012Validator(SCHEMAS[call.name]).validate(call.parse_arguments())
    kinds = [type(event) for event in events if isinstance(event, ReasoningDelta | TextDelta)]
    assert kinds == sorted(kinds, key=lambda kind: kind is TextDelta), "reasoning behind text"
    assert thinking or not message.reasoning
    assert "DSML" not in (message.reasoning or "")
    return message


@pytest.mark.parametrize("name", ASKED)
def test_every_mode_is_valid(answers: dict[str, list[Event]], name: str) -> None:
    message = judged(answers[name], thinking="thinking" in name)
    names = {call.name for call in message.tool_calls}
    match name.partition("-")[0]:
        case "required":
            assert names
            assert not message.content
        case "named":
            assert names == {"search"}
        case "one":
            assert len(message.tool_calls) == 1
        case "none":
            assert not names
            assert "DSML" not in (message.content or "")
        case "response":
            Draft202012Validator(RECORD).validate(json.loads(message.content or ""))


def token_ids(events: Sequence[Event]) -> list[int]:
    return [token for event in events for token in getattr(event, "token_ids", None) or ()]


def steps(events: Sequence[Event]) -> int:
    last = events[-1]
    assert isinstance(last, Finish)
    return last.stats.steps


def test_speculation_and_company_change_no_token(deepseek: Served, answers: dict[str, list[Event]]) -> None:
    """Without drafts, in the opposite order, so that each answer has other company."""
    backwards = list(reversed(ASKED))
    plain = [{**ASKED[name], "heptagram": {"num_speculative_tokens": 0}} for name in backwards]
    undrafted = dict(zip(backwards, play_all(deepseek, plain), strict=True))
    assert {name: token_ids(events) for name, events in undrafted.items()} == {
        name: token_ids(events) for name, events in answers.items()
    }
    assert sum(map(len, map(token_ids, answers.values()))) > 200
    assert sum(map(steps, answers.values())) < 0.7 * sum(map(steps, undrafted.values()))


def test_two_calls_in_one_answer_and_their_results(deepseek: Served) -> None:
    for prompt in PROMPTS:
        first = with_tools(prompt, SEARCH)
        message = judged(play(deepseek, first), thinking=False)
        if len(message.tool_calls) > 1:
            break
    else:
        raise AssertionError("no answer has two calls")
    assert {call.name for call in message.tool_calls} == {"search"}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]
    results = [{"role": "tool", "tool_call_id": call.id, "content": "done"} for call in reversed(message.tool_calls)]
    history = [*first["messages"], {"role": "assistant", "content": None, "tool_calls": calls}, *results]
    assert judged(play(deepseek, {**first, "messages": history}), thinking=False).tool_calls


def test_auto_sometimes_calls_and_sometimes_talks(deepseek: Served) -> None:
    seen = set()
    for prompt in PROMPTS:
        message = judged(play(deepseek, with_tools(prompt, "auto")), thinking=False)
        seen.add(message.finish_reason)
        if len(seen) == 2:
            return
    raise AssertionError(f"only {seen}")


def test_a_cut_call_is_no_call(deepseek: Served) -> None:
    message = fold(play(deepseek, ASKED["named"], max_tokens=30))
    assert message.finish_reason == "length"
    assert not any(call.complete for call in message.tool_calls)


def test_a_cancel_frees_everything_and_the_next_call_is_valid(deepseek: Served) -> None:
    before = deepseek.settle()
    endless = ask("Hello!", max_tokens=3000, ignore_eos=True)
    with Client(deepseek.grpc_url) as client, client.stream(endless) as stream:
        for event in stream:
            if isinstance(event, TextDelta):
                break
    deepseek.settle(5.0)
    deepseek.grown("requests_cancelled_total", before, 1)
    assert judged(play(deepseek, ASKED["required"]), thinking=False).tool_calls
    assert deepseek.settle()["invalid_outputs_total"] == before["invalid_outputs_total"]
