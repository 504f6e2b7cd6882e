"""The configuration: read once from the command line, the environment and the key file, checked, never changed."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal, get_args

from heptagram_client.transports.address import Address, parse_url
from heptagram_gateway.models import ServedModel, parse_served, served_by_default
from heptagram_gateway.page.address import metrics_url
from heptagram_telemetry.settings import Telemetry, TelemetryError, add_arguments, take_arguments

KEY_VARIABLE = "HEPTAGRAM_API_KEY"
UnknownFields = Literal["ignore", "refuse"]
_ORIGIN = re.compile(r"\*|https?://[A-Za-z0-9.\[\]:_-]+")
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class ConfigError(ValueError):
    """An argument, a variable or a file that cannot be used; the message names it."""


@dataclass(frozen=True, slots=True)
class Config:
    """Times are in seconds.

    ``triton_metrics``: the URL of Triton's metrics, for the status page; ``None``: nobody knows it.
    ``idle_timeout``: without any response of Triton, which sends heartbeats. ``keep_alive``: a silent stream gets a
    comment so often. ``header_timeout``, ``body_timeout``: for a whole request to arrive. ``write_timeout``: for a
    reader that takes nothing. ``drain``: what runs at SIGTERM may go on for so long.
    """

    triton: Address
    served: tuple[ServedModel, ...]
    host: str = "127.0.0.1"
    port: int = 9000
    api_keys: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    unknown_fields: UnknownFields = "ignore"
    concurrency: int = 256
    connections: int = 1024
    body_bytes: int = 4 << 20
    header_bytes: int = 64 << 10
    header_timeout: float = 15.0
    body_timeout: float = 30.0
    write_timeout: float = 60.0
    idle_timeout: float = 30.0
    keep_alive: float = 10.0
    drain: float = 30.0
    access_log: str = "-"
    triton_metrics: str | None = None
    telemetry: Telemetry = field(default_factory=Telemetry)

    @property
    def exposed(self) -> bool:
        """Others can reach it and need no key."""
        return self.host not in _LOOPBACK and not self.api_keys


def read_config(argv: Sequence[str], environment: Mapping[str, str] = os.environ) -> Config:
    """The configuration of a command line; argparse ends the process where a value has the wrong type.

    Raises:
        ConfigError: a value is out of range, or the key file cannot be read.
    """
    values = _parser().parse_args(argv)
    for name in _LIMITS:
        _positive(name, getattr(values, name))
    for origin in values.cors_origins:
        if not _ORIGIN.fullmatch(origin):
            raise ConfigError(f"--cors-origin {origin!r}: write * or http(s)://HOST[:PORT]")
    given = vars(values)
    keys = _keys(given.pop("api_keys"), given.pop("api_key_file"), environment)
    triton = _address(values.triton)
    try:
        telemetry = take_arguments(given, environment)
    except TelemetryError as error:
        raise ConfigError(str(error)) from error
    read = {
        "triton": triton,
        "triton_metrics": _metrics(values.triton_metrics, triton),
        "served": _served(values.served),
        "cors_origins": tuple(values.cors_origins),
        "api_keys": keys,
        "telemetry": telemetry,
    }
    return Config(**{**given, **read})


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise ConfigError(f"--{name.replace('_', '-')} {value:g}: must be above 0")


def _address(url: str) -> Address:
    try:
        address = parse_url(url)
    except ValueError as error:
        raise ConfigError(f"--triton {error}") from error
    if address.scheme != "grpc":
        raise ConfigError(f"--triton {url!r}: give Triton's gRPC front, HOST:PORT (8001 by default)")
    return address


def _metrics(url: str | None, triton: Address) -> str:
    try:
        return metrics_url(url, triton)
    except ValueError as error:
        raise ConfigError(f"--triton-metrics {error}") from error


def _served(texts: Sequence[str]) -> tuple[ServedModel, ...]:
    try:
        given = [parse_served(text) for text in texts]
    except ValueError as error:
        raise ConfigError(f"--served-model-name {error}") from error
    ids = {model.id for model in given}
    if len(ids) < len(given):
        raise ConfigError("--served-model-name: a name is given twice")
    return (*given, *(model for model in served_by_default() if model.id not in ids))


def _keys(given: Sequence[str], file: Path | None, environment: Mapping[str, str]) -> tuple[str, ...]:
    keys = [*given, environment.get(KEY_VARIABLE, "")]
    if file is not None:
        try:
            keys += file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--api-key-file {file}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from error
    found = tuple(dict.fromkeys(key.strip() for key in keys if key.strip()))
    if not found and (given or file is not None or KEY_VARIABLE in environment):
        raise ConfigError("an API key was asked for, but it is empty; give one, or leave the option out")
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="heptagram gateway", description="Serve OpenAI's HTTP API in front of a Triton server with our models."
    )
    where = parser.add_argument_group("where")
    where.add_argument("--triton", default="127.0.0.1:8001", metavar="HOST:PORT", help="Triton's gRPC front")
    where.add_argument(
        "--triton-metrics", metavar="URL", help="Triton's metrics, for the status page (default: its host, port 8002)"
    )
    where.add_argument("--host", default="127.0.0.1", help="where to listen (default: %(default)s)")
    where.add_argument("--port", type=int, default=9000, help="default: %(default)s; 0 takes a free one")
    models = parser.add_argument_group("models and requests")
    models.add_argument(
        "--served-model-name",
        dest="served",
        action="append",
        default=[],
        metavar="NAME[=ENSEMBLE[@VERSION]]",
        help="a further model id; may be given several times. A bare NAME stands for `chat` and `completions`",
    )
    models.add_argument(
        "--unknown-fields",
        choices=get_args(UnknownFields),
        default="ignore",
        help="what happens to request fields that nobody knows (default: %(default)s, and said once in the log)",
    )
    access = parser.add_argument_group("access")
    access.add_argument(
        "--api-key", dest="api_keys", action="append", default=[], metavar="KEY", help=f"or variable {KEY_VARIABLE}"
    )
    access.add_argument("--api-key-file", type=Path, metavar="FILE", help="keys, one a line")
    access.add_argument(
        "--cors-origin", dest="cors_origins", action="append", default=[], metavar="ORIGIN", help="default: none"
    )
    _add_limits(parser.add_argument_group("limits"))
    add_arguments(parser)
    parser.add_argument("--access-log", default="-", metavar="FILE", help="JSON lines; - is stdout, `off` none")
    return parser


_LIMITS: Mapping[str, str] = {
    "concurrency": "requests at once; more are 429",
    "connections": "connections at once",
    "body_bytes": "of one request",
    "header_bytes": "of one request",
    "header_timeout": "seconds for the headers of a request",
    "body_timeout": "seconds for the body of a request",
    "write_timeout": "seconds for a reader that takes nothing",
    "idle_timeout": "seconds without a sign of Triton",
    "keep_alive": "seconds between comments in a silent stream",
    "drain": "seconds that running requests have at SIGTERM",
}


def _add_limits(group: argparse._ArgumentGroup) -> None:
    defaults = {field.name: field.default for field in fields(Config)}
    for name, what in _LIMITS.items():
        default = defaults[name]
        option = f"--{name.replace('_', '-')}"
        group.add_argument(
            option, type=type(default), default=default, metavar="N", help=f"{what} (default: %(default)s)"
        )
