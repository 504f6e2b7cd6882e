"""Last step of the ensembles: passes outputs on, and carries a client's cancel back to generate.

Triton tells only a *later* step that the client has left. Each response of generate runs this step, so this is where
the cancel is seen. The step never returns an error: that would leak the ensemble's request for ever.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import triton_python_backend_utils as pb_utils

from heptagram_backend.errors import RequestError
from heptagram_backend.triton.cancel import CancelOutbox, Ticket
from heptagram_backend.triton.tensors import read_bytes
from heptagram_wire import tensors as names

_REMEMBERED: Final = 1024
_PASSED_ON: Final = (names.EVENTS, *names.COMPLETION_OUTPUTS)


class TritonPythonModel:
    """Not decoupled: one response for one request, in order."""

    def initialize(self, _args: Mapping[str, str]) -> None:
        self._outbox = CancelOutbox()
        self._sent: OrderedDict[str, None] = OrderedDict()

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        return [self._relay(request) for request in requests]

    def finalize(self) -> None:
        self._outbox.close()

    def _relay(self, request: Any) -> Any:
        if request.is_cancelled():
            self._send_home(request)
            return pb_utils.InferenceResponse([])
        found = {name: pb_utils.get_input_tensor_by_name(request, name) for name in _PASSED_ON}
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, tensor.as_numpy()) for name, tensor in found.items() if tensor is not None]
        )

    def _send_home(self, request: Any) -> None:
        try:
            ticket = Ticket.from_json(read_bytes(request, names.TICKET) or b"")
        except RequestError:  # nobody is left to be told
            return
        if ticket is not None and ticket.ticket not in self._sent and self._outbox.send(ticket):
            self._sent[ticket.ticket] = None
            while len(self._sent) > _REMEMBERED:
                self._sent.popitem(last=False)
