"""How ``heptagram serve`` calls the gateway, which the backend knows by its command line only."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from heptagram_backend.server.process import Address, netloc

# What may stand as a model id in a request; a served name of another kind has no alias.
MODEL_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")
DRAIN_S: Final = 30
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+).*;.*\bextra == ['\"]gateway['\"]")


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """It listens beside ``triton``, whose models are known by the further id ``served``.

    ``log`` takes what it says; ``access_log`` is a file that takes a line for each request, or ``off``.
    """

    triton: Address
    port: int
    served: str | None
    log: Path
    access_log: str = "off"

    @property
    def netloc(self) -> str:
        """``host:port`` for a client on this machine."""
        return netloc(self.triton.host, self.port)

    def command(self) -> list[str]:
        triton = self.triton
        # -P: this folder's files are not modules.
        program = [sys.executable, "-P", "-m", "heptagram_client.main", "gateway"]
        where = [f"--host={triton.host}", f"--port={self.port}", f"--triton={triton.grpc_url}"]
        about = [f"--triton-metrics={triton.metrics_url}", f"--drain={DRAIN_S}", f"--access-log={self.access_log}"]
        alias = [f"--served-model-name={self.served}"] if self.served else []
        return [*program, *where, *about, *alias]


def options_for(
    triton: Address, port: int, *, served: str | None, log: Path, access_log: str = "off"
) -> GatewayOptions:
    """A name that cannot be a model id gives no alias."""
    alias = served if served and MODEL_ID.fullmatch(served) else None
    return GatewayOptions(triton, port, alias, log, access_log)


def missing_package() -> str | None:
    """The first package of the extra ``gateway`` that is not installed."""
    for text in importlib.metadata.requires("heptagram") or ():
        if match := _REQUIREMENT.match(text):
            try:
                importlib.metadata.version(match[1])
            except importlib.metadata.PackageNotFoundError:
                return match[1]
    return None
