"""README's code blocks are run as they stand, but for the ports and the folder of the environment."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.served import Served

pytestmark = pytest.mark.server

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"^```(bash|python)\n(.*?)^```$", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


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
    ran = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "Paris" in ran.stdout or "shell {'command':" in ran.stdout or "'type': 'finish'" in ran.stdout
