"""README's code blocks are run as they stand, but for the ports and the folder of the environment."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.gateway import Gateway, running_gateway
from tests.server.served import Served

pytestmark = pytest.mark.server

README = Path(__file__).parents[2] / "README.md"
_FOUND = re.findall(r"^```(bash|python)\n(.*?)^```$", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
_GATEWAY = "127.0.0.1:9000"
BLOCKS = [(language, code) for language, code in _FOUND if _GATEWAY not in code]
CONSTRAINED, ORDINARY = [code for _, code in _FOUND if _GATEWAY in code]


@pytest.fixture(scope="module")
def gateway(shipped: Served) -> Iterator[Gateway]:
    with running_gateway(shipped.grpc_url) as gateway:
        yield gateway


def run(command: list[str]) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_there_is_a_block_for_each_kind_of_client() -> None:
    text = "".join(code for _, code in BLOCKS)
    assert all(word in text for word in ("curl", "heptagram chat", "heptagram_client", "tritonclient"))


@pytest.mark.parametrize(
    ("language", "code"), BLOCKS, ids=[f"{kind}-{place}" for place, (kind, _) in enumerate(BLOCKS)]
)
def test_a_block_runs_and_shows_an_answer(shipped: Served, language: str, code: str) -> None:
    address = shipped.process.address
    code = code.replace("127.0.0.1:8000", address.http_url).replace("127.0.0.1:8001", address.grpc_url)
    if language == "bash":
        code = code.replace(
            ".venv/bin/heptagram chat", f"{Path(sys.executable).parent}/heptagram chat --url {address.grpc_url}"
        )
        command = ["bash", "-euc", code]
    else:
        command = [sys.executable, "-W", "error", "-c", code]
    said = run(command)
    assert "Paris" in said or "shell {'command':" in said or "'type': 'finish'" in said


def choice_of(code: str, gateway: Gateway) -> Any:
    answer = json.loads(run(["bash", "-euc", code.replace(f"http://{_GATEWAY}", gateway.url)]))
    [choice] = answer["choices"]
    assert choice["message"]["role"] == "assistant"
    return choice


def test_the_constrained_request_of_openais_api(gateway: Gateway) -> None:
    choice = choice_of(CONSTRAINED, gateway)
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"]
    for call in choice["message"]["tool_calls"]:
        assert call["function"]["name"] == "shell"
        arguments = json.loads(call["function"]["arguments"])
        assert list(arguments) == ["command"]
        assert isinstance(arguments["command"], str)


def test_the_ordinary_request_of_openais_api(gateway: Gateway) -> None:
    choice = choice_of(ORDINARY, gateway)
    assert choice["message"]["content"] or choice["message"]["tool_calls"]
    assert choice["finish_reason"] in ("stop", "length", "tool_calls")
