"""What the server's ports do for anybody who reaches them, and what for nobody without the key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from heptagram_backend.rollout.server import states_of
from heptagram_backend.server.control import ControlKeyError, ModelControl
from heptagram_backend.server.control_key import HEADER, find_key
from heptagram_backend.server.launch import free_address, launch
from heptagram_backend.server.process import ServerProcess
from heptagram_backend.server.segments import SHARED_MEMORY
from tests.launcher.echo import write_echo
from tests.server.served import Served
from tests.server_fixture import running_server

pytestmark = pytest.mark.server

OPERATORS = "an-operators-own-key"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(write_echo(tmp_path_factory.mktemp("restricted") / "repository")) as process:
        yield process


@pytest.mark.parametrize("key", ["wrong", "0" * 32])
def test_model_control_over_http_asks_for_the_key(server: ServerProcess, key: str) -> None:
    stranger, user = ModelControl(server.address, key=key), ModelControl(server.address)
    for call in (lambda: stranger.load("echo"), lambda: stranger.unload("echo"), stranger.states):
        with pytest.raises(ControlKeyError, match="--control-key-file"):
            call()
    with pytest.raises(ControlKeyError):  # which is another thing than no server
        states_of(stranger)
    assert user.states() == {("echo", "1"): "READY"}
    user.unload("echo")
    user.load("echo")
    assert user.ready_versions("echo") == {"1"}


def test_model_control_over_grpc_asks_for_the_key(server: ServerProcess) -> None:
    key = find_key(server.address.host, server.address.http_port)
    with triton.InferenceServerClient(server.address.grpc_url) as client:
        calls: list[Callable[..., object]] = [
            client.get_model_repository_index,
            lambda **how: client.load_model("echo", config='{"backend": "python"}', **how),
            lambda **how: client.unload_model("echo", **how),
        ]
        for call in calls:
            for word in ("", "wrong"):
                with pytest.raises(InferenceServerException, match="restricted"):
                    call(headers={f"triton-grpc-protocol-{HEADER}": word} if word else None)
        assert client.get_model_repository_index(headers={f"triton-grpc-protocol-{HEADER}": key}).models


@pytest.mark.parametrize(
    "path", ["trace/setting", "logging", "models/echo/trace/setting", "cudasharedmemory/unregister"]
)
def test_what_writes_files_or_maps_memory_is_closed_to_everybody(server: ServerProcess, path: str) -> None:
    assert Served(server).post(path, {}).status == 403


def test_other_users_of_the_machine_see_no_key_and_no_request(server: ServerProcess) -> None:
    key = find_key(server.address.host, server.address.http_port)
    assert key
    assert key not in " ".join(psutil.Process(server.pid).cmdline())
    assert key not in server.log.read_text()
    ModelControl(server.address).load("echo")
    server.guard()
    prefix = re.search(r"shm-region-prefix-name=(\S+)", " ".join(psutil.Process(server.pid).cmdline()))
    assert prefix  # this process may have started other servers, which nobody guards just now
    held = list(SHARED_MEMORY.glob(f"{prefix[1]}*"))
    assert len(held) >= 3  # a segment, its lock, the key
    assert [path.name for path in held if path.stat().st_mode & 0o077] == []


def test_an_operators_own_key(tmp_path: Path) -> None:
    with launch(write_echo(tmp_path), free_address(), control_key=OPERATORS) as process:
        process.wait_ready(["echo"])
        assert find_key(process.address.host, process.address.http_port) == OPERATORS
        assert ModelControl(process.address, key=OPERATORS).ready_versions("echo") == {"1"}
    assert find_key(process.address.host, process.address.http_port) is None
