"""The gateway below ``heptagram serve``: how it is called, started again and ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest

from heptagram_backend.cache import VARIABLE
from heptagram_backend.errors import LaunchError
from heptagram_backend.server.gateway import Gateway, NoGateway, reason_not_ready
from heptagram_backend.server.gateway_options import MODEL_ID, GatewayOptions, missing_package, options_for
from heptagram_backend.server.hints import first_requests, where
from heptagram_backend.server.launch import free_ports
from heptagram_backend.server.log import new_log
from heptagram_backend.server.process import Address
from heptagram_gateway.config import read_config
from heptagram_gateway.models import parse_served

ADDRESS = Address(host="127.0.0.1", grpc_port=8001, http_port=8000, metrics_port=8002)
SLEEPS = "import time; time.sleep(60)"


@dataclass(frozen=True, slots=True)
class Program(GatewayOptions):
    """Another program in the gateway's place."""

    code: str = ""

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.code]


def program(folder: Path, code: str) -> Program:
    [port] = free_ports(1)
    return Program(ADDRESS, port, None, folder / "gateway.log", code=code)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_the_gateway_understands_how_it_is_called(host: str, tmp_path: Path) -> None:
    address = Address(host=host, grpc_port=8001, http_port=8000, metrics_port=8002)
    options = options_for(address, 9000, served="org/model-1.5", log=tmp_path / "log", access_log="requests.jsonl")
    command = options.command()
    config = read_config(command[command.index("gateway") + 1 :], {})
    assert (config.host, config.port, config.triton.netloc) == (host, 9000, address.grpc_url)
    assert config.served[0].id == "org/model-1.5"
    assert config.access_log == "requests.jsonl"
    assert config.triton_metrics == address.metrics_url
    assert options.netloc == ("127.0.0.1:9000" if "." in host else "[::1]:9000")


@pytest.mark.parametrize("name", ["a b", "a=b", "a@1", "-a", "", "ü", "x" * 129, "a\n"])
def test_a_name_that_is_no_model_id_gives_no_alias(name: str, tmp_path: Path) -> None:
    assert options_for(ADDRESS, 9000, served=name, log=tmp_path / "log").served is None


@pytest.mark.parametrize("name", ["m", "SmolLM2-135M-Instruct", "org/model:v1", "x" * 128])
def test_model_ids_are_those_of_the_gateway(name: str) -> None:
    assert MODEL_ID.fullmatch(name)
    assert parse_served(name).id == name


def test_the_extra_is_complete_or_its_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_package() is None
    known = metadata.version

    def without_uvicorn(name: str) -> str:
        if name == "uvicorn":
            raise metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(metadata, "version", without_uvicorn)
    assert missing_package() == "uvicorn"


def test_a_gateway_that_dies_is_started_again_ever_later(tmp_path: Path) -> None:
    now, said = [0.0], list[str]()
    gateway = Gateway(program(tmp_path, "print('here')"), report=said.append, clock=lambda: now[0])

    def looked(deaths: int) -> bool:
        gateway.look()
        return len(said) == deaths

    for death, pause in enumerate((0, 1, 4, 16, 60, 60), start=1):
        wait_for(lambda: looked(death))  # noqa: B023
        assert "ended with status 0" in said[-1]
        assert ("again now" if pause == 0 else f"again in {pause} s") in said[-1]
        if pause:
            now[0] += pause - 0.5
            time.sleep(0.05)
            assert looked(death), "it was started too early"
            now[0] += 0.5
    now[0] += 1000
    wait_for(lambda: looked(7))
    assert "again now" in said[-1], "what is long ago counts no more"
    assert gateway.stop()
    assert (tmp_path / "gateway.log").read_text().count("here") == 7


def test_one_that_does_not_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    gateway = Gateway(program(tmp_path, "import sys; sys.exit('the reason is here')"), report=str)
    with pytest.raises(LaunchError, match=r"(?s)the gateway ended with status 1\n.*the reason is here"):
        gateway.wait_ready()
    assert gateway.stop()


def test_one_that_never_answers_is_given_up(tmp_path: Path) -> None:
    gateway = Gateway(program(tmp_path, SLEEPS), report=str)
    with pytest.raises(LaunchError, match=r"not ready after 0 s \(.*Connection refused"):
        gateway.wait_ready(timeout_s=0.2)
    assert gateway.stop()
    assert reason_not_ready(gateway.netloc)


def test_an_impatient_stop_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway(program(tmp_path, SLEEPS), report=str)
    process = gateway._process
    assert process is not None
    wait = process.wait

    def interrupted(timeout: float | None = None) -> int:
        if timeout is not None:
            raise KeyboardInterrupt
        return wait()

    monkeypatch.setattr(process, "terminate", lambda: None)
    monkeypatch.setattr(process, "wait", interrupted)
    assert not gateway.stop()
    assert process.returncode == -9


def test_a_log_in_use_outlives_twenty_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    log = new_log("gateway")
    [port] = free_ports(1)
    gateway = Gateway(Program(ADDRESS, port, None, log, code=SLEEPS), report=str)
    try:
        for number in range(30):
            (log.parent / f"gateway-99990101-{number:02d}.log").touch()
        new_log("gateway")
        assert log.exists()
    finally:
        gateway.stop()
    new_log("gateway")
    assert not log.exists()


def test_the_key_is_never_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway(program(tmp_path, SLEEPS), report=str)
    try:
        monkeypatch.delenv("HEPTAGRAM_API_KEY", raising=False)
        assert "Authorization" not in first_requests(ADDRESS, gateway)
        monkeypatch.setenv("HEPTAGRAM_API_KEY", "secret")
        said = first_requests(ADDRESS, gateway)
    finally:
        gateway.stop()
    assert f"curl -s http://{gateway.netloc}/v1/chat/completions" in said
    assert '"Authorization: Bearer $HEPTAGRAM_API_KEY"' in said
    assert "secret" not in said


def test_without_a_gateway_nothing_is_said_of_it() -> None:
    assert "/v1" not in first_requests(ADDRESS, NoGateway())
    assert NoGateway().stop()


def test_where_names_the_gateway_and_its_log(tmp_path: Path) -> None:
    gateway = Gateway(program(tmp_path, SLEEPS), report=str)
    try:
        server = type("Server", (), {"address": ADDRESS, "log": tmp_path / "triton.log"})
        said = where(server, gateway)  # type: ignore[arg-type]
    finally:
        gateway.stop()
    assert said.startswith(f"OpenAI http://{gateway.netloc}/v1   gRPC 127.0.0.1:8001")
    assert said.endswith(f"log  {tmp_path}/triton.log {tmp_path}/gateway.log\n")
