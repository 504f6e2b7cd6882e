"""Processes die under the gateway's streams: what the reader is told, and that all is well again soon."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from heptagram_backend.server.launch import free_address
from tests.server.gateway import Gateway, running_gateway
from tests.server.launched import Launched, launched
from tests.server.repository import SHIPPED

pytestmark = pytest.mark.server

COUNT: list[Any] = [{"role": "user", "content": "Count from one to one thousand in words."}]


@pytest.fixture(scope="module")
def serving() -> Iterator[Launched]:
    with launched(SHIPPED, free_address()) as launcher:
        yield launcher


@pytest.fixture(scope="module")
def gateway(serving: Launched) -> Iterator[Gateway]:
    with running_gateway(serving.address.grpc_url, "--idle-timeout", "3") as gateway:
        yield gateway


def recovered(client: OpenAI) -> bool:
    """Ask until there is an answer."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        try:
            return bool(client.chat.completions.create(model="chat", messages=COUNT, max_tokens=4).choices)
        except openai.InternalServerError:
            time.sleep(0.2)
    return False


@pytest.mark.parametrize("model", ["generate", "preprocess"])
def test_a_model_dies(serving: Launched, gateway: Gateway, model: str) -> None:
    with OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client:
        extra = {"ignore_eos": True}
        stream = client.chat.completions.create(
            model="chat", messages=COUNT, max_tokens=1500, stream=True, extra_body=extra
        )
        with stream:
            next(stream)
            serving.stubs()[model].kill()
            if model == "generate":
                with pytest.raises(openai.APIError) as caught:
                    list(stream)
                assert caught.value.body is not None
        assert recovered(client)


def test_the_server_dies_and_nobody_is_there(serving: Launched, gateway: Gateway) -> None:
    with OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client:
        stream = client.chat.completions.with_streaming_response.create(
            model="chat", messages=COUNT, max_tokens=1500, stream=True, extra_body={"ignore_eos": True}
        )
        with stream as answer:
            lines = [line for line in _killing(answer.iter_lines(), serving) if line]
        assert '"error"' in lines[-2]
        assert lines[-1] == "data: [DONE]"
        with pytest.raises(openai.InternalServerError) as caught:
            client.chat.completions.create(model="chat", messages=COUNT)
        assert caught.value.status_code == 503
        with pytest.raises(openai.InternalServerError, match="cannot be reached"):
            client.get("/../health/ready", cast_to=object)


def _killing(lines: Iterator[str], serving: Launched) -> Iterator[str]:
    """Kill the server behind the first line."""
    yield next(lines)
    serving.server.kill()
    yield from lines
