"""Text completions, checked with the openai package."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai.types import Completion

from heptagram_client.errors import HeptagramClientError, ProtocolError, ServerError, reported_error
from heptagram_client.transports.base import TextResponse
from heptagram_wire.errors import WireError
from tests.client.samples import TEXT
from tests.gateway.front import Running, data_of, running
from tests.gateway.scripted import ScriptedServer, TextScript, play, told
from tests.gateway.test_errors import error_of

LAST = told("", "stop", 3, 1, final=True)


def answering(*steps: TextResponse | HeptagramClientError | float) -> TextScript:
    """Every prompt's answer repeats it in front, so that mixed-up ones show."""

    async def script(inputs: dict[str, Any]) -> AsyncIterator[TextResponse]:
        yield told(prompt_tokens=3)
        yield told(f"<{inputs['text_input']}>", prompt_tokens=3, tokens=2)
        for step in steps:
            if isinstance(step, HeptagramClientError):
                raise step
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                yield step

    return script


def test_one_prompt(front: Running, server: ScriptedServer) -> None:
    server.texts = answering(told(" world", None, 3, 1), LAST)
    answer = front.openai().completions.create(model="chat", prompt="Hi", max_tokens=5, stop=["x"], seed=2**63)
    assert answer.choices[0].text == "<Hi> world"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (3, 4, 7)
    model, inputs = server.requests[0]
    assert model == "completions"
    assert inputs["text_input"] == "Hi"
    assert json.loads(inputs["sampling_parameters"]) == {"max_tokens": 5, "stop": ["x"], "seed": 2**63}
    assert inputs["stream"] is True


@pytest.mark.parametrize("echo", [True, False])
def test_several_prompts(front: Running, server: ScriptedServer, echo: bool) -> None:
    server.texts = answering(told("!", "length", 3, 1, final=True))
    body = {"prompt": ["a", "b", "c"], "echo": echo}
    answer = front.post("/v1/completions", **body)
    Completion.model_validate(answer.json(), strict=True)
    expected = [f"{p}<{p}>!" if echo else f"<{p}>!" for p in "abc"]
    assert [choice["text"] for choice in answer.json()["choices"]] == expected
    assert answer.json()["usage"] == {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
    streamed = data_of(front.post("/v1/completions", **body, stream=True, stream_options={"include_usage": True}).text)
    assert streamed.pop() == "[DONE]"
    usage = streamed.pop()
    assert (usage["choices"], usage["usage"]) == ([], answer.json()["usage"])
    texts = ["", "", ""]
    reasons: list[list[str]] = [[], [], []]
    for chunk in streamed:
        Completion.model_validate(chunk | {"choices": []}, strict=True)
        [choice] = chunk["choices"]
        assert choice["text"] or choice["finish_reason"]
        texts[choice["index"]] += choice["text"]
        reasons[choice["index"]] += [choice["finish_reason"]] if choice["finish_reason"] else []
    assert texts == expected
    assert reasons == [["length"]] * 3


def test_refusals_are_statuses(front: Running, server: ScriptedServer) -> None:
    async def refusing(inputs: dict[str, Any]) -> AsyncIterator[TextResponse]:
        raise reported_error(WireError("unsupported", "only greedy decoding", "temperature"))
        yield LAST

    server.texts = refusing
    for stream in (True, False):
        answer = front.post("/v1/completions", prompt=["a", "b"], temperature=1, stream=stream)
        assert answer.status_code == 400
        assert error_of(answer)["param"] == "temperature"


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (ServerError("secret"), "bad_gateway"),
        (told("", "deadline", final=True), "deadline"),
        (told("", None, final=True), "bad_gateway"),
        (30.0, "timeout"),
        (ProtocolError("the server sent broken log probabilities"), "bad_gateway"),
    ],
)
def test_later_failures_are_in_the_stream(ending: Any, code: str) -> None:
    with running(play(TEXT), answering(ending), idle_timeout=0.3) as front:
        body = {"prompt": "a", "stream_options": {"include_usage": True}, "stream": True}
        chunks = data_of(front.post("/v1/completions", **body).text)
        assert [chunk["choices"][0]["text"] for chunk in chunks[:-2]] == ["<a>"]
        assert chunks[-2]["error"]["code"] == code
        assert chunks[-1] == "[DONE]"
        assert front.post("/v1/completions", prompt="a").status_code >= 500


def test_which_ensemble(front: Running, server: ScriptedServer) -> None:
    server.texts = answering(LAST)
    for model, name in (("chat", "completions"), ("completions", "completions"), ("completions@1", "completions@1")):
        assert front.post("/v1/completions", prompt="a", model=model).status_code == 200
        assert server.requests[-1][0] == name
    assert front.post("/v1/completions", prompt="a", model="completions@9").status_code == 404
