"""Triton's model control over HTTP, for whoever has the key: which versions are ready, unload, load."""

from __future__ import annotations

import http.client
import json
from typing import Any

from heptagram_backend.errors import HeptagramError
from heptagram_backend.server.control_key import HEADER, find_key
from heptagram_backend.server.process import Address


class ControlError(HeptagramError):
    """Triton refused, or does not answer; the message is its own."""


class ControlKeyError(ControlError):
    """There is a server, but we have not the key to its model control."""


class ModelControl:
    """One server's model repository. Without a ``key``, that of this user's server at ``address`` is looked for."""

    def __init__(self, address: Address, *, key: str | None = None) -> None:
        self._address = address
        self._key = key

    def ready_versions(self, model: str) -> set[str]:
        """The versions of ``model`` of which Triton says that they are ready, whether or not it is true.

        Raises:
            ControlError: the server does not answer.
        """
        return {version for (name, version), state in self.states().items() if name == model and state == "READY"}

    def states(self) -> dict[tuple[str, str], str]:
        """What Triton says of each version of each model: READY, LOADING, UNLOADING or UNAVAILABLE.

        Raises:
            ControlError: the server does not answer.
        """
        index: list[dict[str, str]] = json.loads(self._post("index", timeout_s=10))
        states = {(entry["name"], entry.get("version", "")): entry.get("state", "").upper() for entry in index}
        return {place: state for place, state in states.items() if state}

    def unload(self, model: str) -> None:
        """Start to unload: requests that come from now on are refused, ensembles over the model go too.

        Raises:
            ControlError: see above.
        """
        self._post(f"models/{model}/unload", timeout_s=60)

    def load(self, model: str, *, timeout_s: float = 900.0) -> None:
        """Load, and wait until the model is ready; ensembles over it come back by themselves.

        Raises:
            ControlError: see above.
        """
        self._post(f"models/{model}/load", timeout_s=timeout_s)

    def _post(self, path: str, *, timeout_s: float) -> bytes:
        address = self._address
        key = self._key or find_key(address.reachable_host, address.http_port)
        connection = http.client.HTTPConnection(address.reachable_host, address.http_port, timeout=timeout_s)
        try:
            connection.request("POST", f"/v2/repository/{path}", "{}", {HEADER: key} if key else {})
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ControlError(f"tritonserver does not answer: {error}") from error
        finally:
            connection.close()
        if response.status == 403:
            raise ControlKeyError(
                "model control asks for a key: be the user, on the machine, who runs `heptagram serve`, or give both "
                f"the same --control-key-file (tritonserver: {_reason(body)})"
            )
        if response.status != 200:
            raise ControlError(_reason(body))
        return body


def _reason(body: bytes) -> str:
    try:
        told: Any = json.loads(body)
        return str(told["error"])
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace")
