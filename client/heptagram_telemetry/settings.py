"""How a process logs and traces: flags of the commands, handed on to the processes below by the environment."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import asdict, dataclass, fields
from typing import Final, Literal, get_args
from urllib.parse import urlsplit

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
_PREFIX: Final = "HEPTAGRAM_"


class TelemetryError(ValueError):
    """A value that cannot be used; the message names the flag."""


@dataclass(frozen=True, slots=True)
class Telemetry:
    """``otlp_traces_endpoint``: the URL of an OpenTelemetry collector, ``http(s)://HOST:PORT/v1/traces``, or
    ``file:PATH`` for a line of JSON a span; empty: nothing is traced."""

    log_format: LogFormat = "text"
    log_level: LogLevel = "warning"
    otlp_traces_endpoint: str = ""

    def __post_init__(self) -> None:
        for name, choices in (("log_format", LogFormat), ("log_level", LogLevel)):
            if getattr(self, name) not in get_args(choices):
                raise TelemetryError(f"{_flag(name)} {getattr(self, name)!r}: one of {', '.join(get_args(choices))}")
        parts = urlsplit(self.otlp_traces_endpoint)
        if self.otlp_traces_endpoint and not (
            (parts.scheme in ("http", "https") and parts.hostname) or (parts.scheme == "file" and parts.path)
        ):
            raise TelemetryError(
                f"--otlp-traces-endpoint {self.otlp_traces_endpoint!r}: give http://HOST:4318/v1/traces or file:PATH"
            )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Telemetry:
        """What the process above has handed on.

        Raises:
            TelemetryError: a variable holds a value that cannot be used.
        """
        named = {field.name: environment.get(_PREFIX + field.name.upper()) for field in fields(cls)}
        return cls(**{name: value for name, value in named.items() if value})  # type: ignore[arg-type]

    def hand_on(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Let :meth:`from_environment` find this in the processes that are started from now on."""
        environment.update({_PREFIX + name.upper(): value for name, value in asdict(self).items()})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags; the environment holds their defaults."""
    group = parser.add_argument_group("logs and traces")
    group.add_argument("--log-format", choices=get_args(LogFormat), help="default: text")
    group.add_argument(
        "--log-level", choices=get_args(LogLevel), help="default: warning; info has a line for the end of each request"
    )
    group.add_argument(
        "--otlp-traces-endpoint",
        metavar="URL",
        help="of an OpenTelemetry collector (http://HOST:4318/v1/traces), or file:PATH; default: no traces",
    )


def take_arguments(values: dict[str, object], environment: Mapping[str, str] = os.environ) -> Telemetry:
    """Take the flags out of parsed ``values``; what was not given is as in the environment.

    Raises:
        TelemetryError: a value cannot be used.
    """
    known = Telemetry.from_environment(environment)
    given = {field.name: values.pop(field.name) for field in fields(Telemetry)}
    return Telemetry(**{**asdict(known), **{name: value for name, value in given.items() if value is not None}})


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
