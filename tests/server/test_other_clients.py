"""Clients of other people against the real server: LangChain, pydantic-ai, and OpenAI's npm package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import tests.clients
from tests.server.gateway import Gateway, running_gateway
from tests.server.served import Served

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

FOLDER = Path(tests.clients.__file__).parent


@pytest.fixture(scope="module")
def gateway(shipped: Served) -> Iterator[Gateway]:
    with running_gateway(shipped.grpc_url, "--api-key", "secret") as gateway:
        yield gateway
        assert gateway.stop() == 0


def run(gateway: Gateway, *command: str) -> Any:
    """What a program of ``tests/clients`` prints."""
    environment = {**os.environ, "OPENAI_BASE_URL": f"{gateway.url}/v1", "OPENAI_API_KEY": "secret"}
    ran = subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def check(said: Any) -> None:
    assert set(said["call"]) == {"city", "unit"}
    assert said["call"]["city"] in ("Paris", "Oslo", "Rome")
    assert said["call"]["unit"] in ("celsius", "fahrenheit")
    assert said["answer"].strip()


@pytest.mark.parametrize(
    ("package", "program"), [("langchain_openai", "langchain_tools.py"), ("pydantic_ai", "pydantic_ai_output.py")]
)
def test_a_python_client(gateway: Gateway, shipped: Served, package: str, program: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install -e '.[dev]'")
    check(run(gateway, sys.executable, program))
    shipped.settle()


def test_the_npm_package(gateway: Gateway, shipped: Served) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node on PATH")
    if not (FOLDER / "node_modules" / "openai").is_dir():
        pytest.skip("the npm package is not installed: npm install --no-package-lock --prefix tests/clients")
    check(run(gateway, node, "openai_tools.mjs"))
    shipped.settle()
