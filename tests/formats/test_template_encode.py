"""Prompts of formats that the checkpoint's own template renders, against what the official templates made of the same.

The recorded templates stay out of the project (``make_goldens.py``): the tokenizer here has the recorded text in the
place of a template, and compares what a template would be given with what the recorded one was given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from heptagram_backend.conversation import ChatRequest, Message, PastCall
from heptagram_backend.errors import ReleaseError, RequestError
from heptagram_backend.formats import load_format
from heptagram_backend.formats.base import PromptEncoding, When
from heptagram_backend.formats.qwen3.markup import reasoning_of
from heptagram_backend.formats.qwen3_xml import Qwen3Xml
from heptagram_backend.formats.template import in_call_order
from heptagram_backend.tokenizer import CheckpointTokenizer
from tests.formats import smollm2
from tests.formats.conversations import CONVERSATIONS, EVIL, given
from tests.formats.samples import request
from tests.formats.tokenizers import LLAMA, QWEN, tokenizer

FOLDER = Path(__file__).parent / "goldens"
GOLDENS = sorted(path.stem for path in FOLDER.glob("*.json"))
QWEN_IDS = {151_643 + place: text for place, text in enumerate(QWEN)}
LLAMA_IDS = {128_000 + place: text for place, text in enumerate(LLAMA)}


@cache
def golden(name: str) -> Mapping[str, Any]:
    data: Mapping[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return data


class Replayed:
    """A real tokenizer whose template is a recorded case."""

    def __init__(self, inner: CheckpointTokenizer, case: Mapping[str, Any]) -> None:
        self._case = case
        self.guard, self.guarded, self.token_id, self.encode = inner.guard, inner.guarded, inner.token_id, inner.encode

    def render(self, messages: Sequence[Mapping[str, Any]], **template_kwargs: Any) -> str:
        assert {"messages": messages, **template_kwargs} == self._case["given"]
        return str(self._case["text"])


def encoded(name: str, case: str) -> tuple[PromptEncoding, str]:
    """The prompt of a recorded case, and the text of its ids with control tokens between zeros."""
    recorded = golden(name)
    format_name = recorded["format"]
    made = tokenizer(format_name)
    prompt = load_format(format_name).encode(CONVERSATIONS[case], Replayed(made, recorded["cases"][case]))
    control = LLAMA_IDS if format_name == "llama3_json" else QWEN_IDS
    pieces = plain_pieces(format_name)
    shown = [
        f"\x00{control[token]}\x00".encode() if token in control else pieces[token] or b"?" for token in prompt.ids
    ]
    return prompt, b"".join(shown).decode()


@cache
def plain_pieces(format_name: str) -> list[bytes | None]:
    return tokenizer(format_name).token_bytes(frozenset())


@pytest.mark.parametrize("name", GOLDENS)
@pytest.mark.parametrize("case", CONVERSATIONS)
def test_prompts_are_those_of_the_official_template(name: str, case: str) -> None:
    prompt, shown = encoded(name, case)
    text = golden(name)["cases"][case]["text"]
    assert shown.replace("\x00", "") == text.replace("\U0010fffe", "")
    off = "llama" in name or (case == "without thinking" and name in ("qwen3", "qwen3_5"))
    expected: When = "never" if off else "always" if name == "qwen3_5" else "maybe"
    assert prompt.reasoning == expected
    assert prompt.starts_in_reasoning == (expected == "always")


@pytest.mark.parametrize("name", GOLDENS)
def test_control_tokens_of_the_caller_are_plain_text(name: str) -> None:
    _, shown = encoded(name, "control tokens of the caller")
    assert shown.count(EVIL) >= 3  # the system, the user and the assistant say so
    ended = shown.count("\x00<|im_end|>\x00") or shown.count("\x00<|eot_id|>\x00")
    assert ended == 4 + ("llama" in name)  # the turns, and with Llama one more for the text beside a call


def test_every_golden_says_where_it_is_from() -> None:
    assert GOLDENS == ["llama3_1", "llama3_2", "qwen3", "qwen3_5", "qwen3_coder"]
    assert all("sha256" in golden(name)["origin"] for name in GOLDENS)


@pytest.mark.parametrize(
    ("prompt", "reasoning"),
    [
        ("<|im_start|>assistant\n<think>\n", "always"),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", "never"),
        ("<|im_start|>assistant\n", "maybe"),
    ],
)
def test_the_templates_end_says_whether_the_model_reasons(prompt: str, reasoning: When) -> None:
    assert reasoning_of(prompt) == reasoning


@pytest.mark.parametrize("name", ["qwen3", "qwen3_xml", "llama3_json"])
def test_a_tokenizer_of_another_model_is_refused(name: str) -> None:
    load_format(name).check(tokenizer(name))
    with pytest.raises(ReleaseError, match=f"{name} needs .* point `checkpoint` at a"):
        load_format(name).check(smollm2.tokenizer())


def switches(**fields: Any) -> dict[str, Any]:
    """What the template gets beside messages and tools."""
    seen: dict[str, Any] = {}

    class Asking(Replayed):
        def render(self, messages: Sequence[Mapping[str, Any]], **template_kwargs: Any) -> str:
            seen.update(template_kwargs)
            return ""

    load_format("qwen3").encode(request(**fields), Asking(tokenizer("qwen3"), {}))
    return {key: value for key, value in seen.items() if key != "tools"}


def test_reasoning_effort_none_turns_thinking_off() -> None:
    assert switches() == {}
    assert switches(chat_template_kwargs={"enable_thinking": True}) == {"enable_thinking": True}
    assert switches(reasoning_effort="none") == {"enable_thinking": False}
    with pytest.raises(RequestError, match="disagrees") as caught:
        switches(reasoning_effort="none", chat_template_kwargs={"enable_thinking": True})
    assert caught.value.wire.param == "chat_template_kwargs.enable_thinking"


def test_past_values_are_told_apart_by_their_spelling() -> None:
    def spelled(arguments: str) -> Mapping[str, str]:
        given: Mapping[str, str] = Qwen3Xml().past_call(PastCall("1", "f", arguments), str)["arguments"]
        return given

    assert spelled('{"a": true, "b": null, "c": "true", "d": 1.0}') == {
        "a": "true",
        "b": "null",
        "c": "true",
        "d": "1.0",
    }
    assert spelled('{"a": "x</parameter>", "b": ["</parameter>"]}') == {
        "a": "x&lt;/parameter>",
        "b": '["</parameter>"]',
    }
    assert spelled('{"a": "cut') == {"arguments": '{"a": "cut'}
    assert spelled('{"a>b": 1}') == {"arguments": '{"a>b": 1}'}
    assert spelled("") == {}


def test_results_keep_to_the_order_of_the_last_calls() -> None:
    messages = (
        Message("assistant", "", calls=(PastCall("a", "f", ""), PastCall("b", "f", "{}"))),
        *(Message("tool", f"of {name}", call_id=name) for name in "zba"),
        Message("assistant", "Then"),
        Message("tool", "of b again", call_id="b"),
    )
    assert [message.content for message in in_call_order(messages)] == [
        "",
        "of a",
        "of b",
        "of z",
        "Then",
        "of b again",
    ]


def test_llamas_turns_have_one_call_each() -> None:
    asked: ChatRequest = CONVERSATIONS["calls and results"]
    messages = given("llama3_json", asked, tokenizer("llama3_json"))["messages"]
    assert [message["role"] for message in messages] == [
        "system",
        "user",
        *["assistant"] * 2,
        "tool",
        "assistant",
        "tool",
    ]
    assert [message["content"] for message in messages[2:]] == ["Let me see.", "", "warm", "", "cold"]
    stray = request(Message("user", "a"), Message("tool", "lost", call_id="x"))
    assert given("llama3_json", stray, tokenizer("llama3_json"))["messages"][1] == {"role": "tool", "content": "lost"}
