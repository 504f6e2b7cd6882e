"""Last step of the ensembles: passes outputs on, and carries a client's cancel back to generate.

Triton tells only a *later* step that the client has left. Each response of generate runs this step, so this is where
the cancel is seen. The step never returns an error: that would leak the ensemble's request for ever.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import triton_python_backend_utils as pb_utils

from heptagram_backend.errors import RequestError
from heptagram_backend.triton.cancel import CancelOutbox, Ticket
from heptagram_backend.triton.tensors import read_bytes
from heptagram_wire import tensors as names

_REMEMBERED: Final = 1024
_ASK_INTERVAL_S: Final = 0.05
_PASSED_ON: Final = frozenset({names.EVENTS, *names.COMPLETION_OUTPUTS})


class TritonPythonModel:
    """Not decoupled: one response for one request, in order."""

    def initialize(self, _args: Mapping[str, str]) -> None:
        self._outbox = CancelOutbox()
        self._sent: OrderedDict[str, None] = OrderedDict()
        self._asked: OrderedDict[bytes, float] = OrderedDict()

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        return [self._relay(request) for request in requests]

    def finalize(self) -> None:
        self._outbox.close()

    def _relay(self, request: Any) -> Any:
        ticket = self._ticket(request)
        if self._is_cancelled(request, ticket):
            self._send_home(ticket)
            return pb_utils.InferenceResponse([])
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(each.name(), each.as_numpy()) for each in request.inputs() if each.name() in _PASSED_ON]
        )

    def _is_cancelled(self, request: Any, ticket: bytes) -> bool:
        """Each question is a message to the server, which the response would wait for: one in 50 ms is enough, for a
        client that has left is asked about again with the next response."""
        now = time.monotonic()
        if now < self._asked.get(ticket, 0.0) + _ASK_INTERVAL_S:
            return False
        if request.is_cancelled():
            return True
        _remember(self._asked, ticket, now)
        return False

    @staticmethod
    def _ticket(request: Any) -> bytes:
        """As it came; empty where there is none."""
        try:
            return read_bytes(request, names.TICKET) or b""
        except RequestError:
            return b""

    def _send_home(self, text: bytes) -> None:
        ticket = Ticket.from_json(text)
        if ticket is not None and ticket.ticket not in self._sent and self._outbox.send(ticket):
            _remember(self._sent, ticket.ticket, None)


def _remember(seen: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    """Of so many keys, the ones that came last."""
    seen[key] = value
    seen.move_to_end(key)
    while len(seen) > _REMEMBERED:
        seen.popitem(last=False)
