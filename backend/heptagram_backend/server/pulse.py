"""Notices a tritonserver that is there but answers nobody: 2.51 can hang in its own handler of a crash."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable

from heptagram_backend.errors import LaunchError
from heptagram_backend.server.process import Address

_EVERY_S = 2.0
_TIMEOUT_S = 5.0
_MISSES = 4


class Pulse:
    """Call :meth:`check` as often as you like."""

    def __init__(self, address: Address, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._clock = clock
        self._due = 0.0
        self._missed = 0

    def check(self) -> None:
        """Ask whether the server lives, when it is time to.

        Raises:
            LaunchError: it has not answered several times in a row.
        """
        if self._clock() < self._due:
            return
        self._missed = 0 if self._beats() else self._missed + 1
        self._due = self._clock() + _EVERY_S
        if self._missed == _MISSES:
            raise LaunchError(f"tritonserver did not answer {_MISSES} times in a row; it is killed")

    def _beats(self) -> bool:
        connection = http.client.HTTPConnection(
            self._address.reachable_host, self._address.http_port, timeout=_TIMEOUT_S
        )
        try:
            connection.request("GET", "/v2/health/live")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
