"""A constraint that would compile for a minute, at the real server: a 400, and nobody waits for it."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from heptagram_wire import tensors as names
from tests.server.repository import SHIPPED
from tests.server.served import Answer, Served
from tests.server_fixture import running_server

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

_COUNTED = {
    "type": "object",
    "properties": {f"p{place}": {"type": "string"} for place in range(64)},
    "minProperties": 3,
    "maxProperties": 40,
}
_BOMB = {"type": "object", "properties": {f"o{place}": _COUNTED for place in range(20)}}


def test_a_bomb_is_refused_and_the_others_are_served(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(SHIPPED, repository)
    release = repository / names.GENERATE / "1" / "release.yaml"
    text = release.read_text(encoding="utf-8")
    assert "compile_seconds: 10 " in text
    release.write_text(text.replace("compile_seconds: 10 ", "compile_seconds: 2 "), encoding="utf-8")
    with running_server(repository) as process:
        served = Served(process)
        with ThreadPoolExecutor(1) as threads:
            bomb = threads.submit(_ask, served, _BOMB)
            others = 0
            while not bomb.done():
                assert _ask(served).status == 200
                others += 1
            refused = bomb.result()
        assert refused.status == 400
        assert "[grammar_too_costly] -: compiling the constraint takes more than 2 s" in refused.error
        assert others > 1
        assert _ask(served, _BOMB).error == refused.error  # from memory
        served.settle()
        children = _trials(process.pid)
        assert len(children) == 1  # it waits for the next one
    assert not psutil.wait_procs(children, timeout=30)[1]


def _ask(served: Served, schema: Any = None) -> Answer:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "Say hi."}], "max_tokens": 4, "stream": False}
    if schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return served.generate(json.dumps(body))


def _trials(server: int) -> list[psutil.Process]:
    """The processes below ``server`` that try constraints; those of other tests' servers are none of its business."""
    return [child for child in psutil.Process(server).children(recursive=True) if _is_trial(child)]


def _is_trial(process: psutil.Process) -> bool:
    """False for one that ends just now and has no command line any more."""
    try:
        return "heptagram_backend.trial.child" in process.cmdline()
    except psutil.NoSuchProcess:  # a zombie is one of these
        return False
