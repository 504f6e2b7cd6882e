"""The command line, the environment, the key file."""

from __future__ import annotations

import signal
import socket
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from heptagram_client.transports.address import Address
from heptagram_gateway.command import EXIT_FAILED, EXIT_USAGE, command
from heptagram_gateway.config import Config, ConfigError, read_config
from heptagram_gateway.models import served_by_default
from tests.server.gateway import running_gateway


def test_defaults() -> None:
    config = read_config([], {})
    metrics = "http://127.0.0.1:8002/metrics"
    assert config == Config(Address("grpc", "127.0.0.1", 8001), served_by_default(), triton_metrics=metrics)
    assert (config.host, config.port, config.exposed) == ("127.0.0.1", 9000, False)


def test_every_option_reaches_its_field() -> None:
    config = read_config(
        [
            "--triton",
            "t:1",
            "--host",
            "::",
            "--port",
            "1",
            "--served-model-name",
            "a",
            "--served-model-name",
            "b=chat@1",
        ]
        + [
            "--unknown-fields",
            "refuse",
            "--api-key",
            "k",
            "--cors-origin",
            "http://a:1",
            "--access-log",
            "off",
            "--log-format",
            "json",
        ]
        + [part for name in _NUMBERS for part in (f"--{name}", "7")],
        {},
    )
    changed = {
        field.name
        for field in fields(Config)
        if getattr(config, field.name) != getattr(read_config([], {}), field.name)
    }
    assert changed == {field.name for field in fields(Config)}
    assert [model.id for model in config.served] == ["a", "b", "chat", "completions"]


_NUMBERS = (
    *("concurrency", "connections", "body-bytes", "header-bytes", "header-timeout", "body-timeout", "write-timeout"),
    *("idle-timeout", "keep-alive", "drain"),
)


def test_a_name_can_stand_for_another_ensemble() -> None:
    served = {model.id: model.chat for model in read_config(["--served-model-name", "chat=mine@2"], {}).served}
    assert served == {"chat": "mine", "completions": "chat"}


def test_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("two\n\n three \n")
    config = read_config(["--api-key", "one", "--api-key-file", str(file)], {"HEPTAGRAM_API_KEY": "four"})
    assert config.api_keys == ("one", "four", "two", "three")
    assert read_config(["--host", "0.0.0.0"], {}).exposed
    assert not read_config(["--host", "0.0.0.0", "--api-key", "k"], {}).exposed


@pytest.mark.parametrize(
    ("argv", "environment", "word"),
    [
        (["--triton", "http://a:1"], {}, "gRPC front"),
        (["--triton", "a/b"], {}, "--triton"),
        (["--served-model-name", "a b"], {}, "--served-model-name"),
        (["--served-model-name", "a", "--served-model-name", "a=chat@1"], {}, "twice"),
        (["--concurrency", "0"], {}, "--concurrency"),
        (["--body-timeout", "-1"], {}, "--body-timeout"),
        (["--idle-timeout", "nan"], {}, "--idle-timeout"),
        (["--cors-origin", "example.com"], {}, "--cors-origin"),
        (["--api-key", ""], {}, "API key"),
        (["--api-key-file", "/nowhere"], {}, "--api-key-file"),
        ([], {"HEPTAGRAM_API_KEY": " "}, "API key"),
    ],
)
def test_what_cannot_be_used(argv: list[str], environment: dict[str, str], word: str) -> None:
    """An empty key above all: it would leave the door open."""
    with pytest.raises(ConfigError, match=word):
        read_config(argv, environment)


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["--concurrency", "0"]) == EXIT_USAGE
    assert "--concurrency" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert command(["--port", port]) == EXIT_FAILED
        assert port in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_command_ends_in_order(number: signal.Signals) -> None:
    with running_gateway("127.0.0.1:1") as gateway:
        gateway.process.send_signal(number)
        assert gateway.process.wait(20) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_job_in_the_background_hears_no_terminal(number: signal.Signals) -> None:
    with running_gateway("127.0.0.1:1", ignoring=[number]) as gateway:
        gateway.process.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            gateway.process.wait(1)
        assert gateway.stop() == 0
