"""One request's way out: the engine's events become responses of a Triton response sender."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import triton_python_backend_utils as pb_utils

from heptagram_backend.errors import HeptagramError
from heptagram_backend.triton.render import Renderer
from heptagram_backend.triton.status import contained, failure_error, triton_error
from heptagram_backend.triton.tensors import text_array
from heptagram_wire import tensors as names
from heptagram_wire.events import Event, Failure, Ping, Start

_log = logging.getLogger(__name__)
_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class ResponseSink:
    """One send a step. Without ``stream`` everything is held back for the only response.

    The lock also covers ``is_cancelled``: subtle: the server frees a sender's response factory at FINAL, and asking
    after that reads freed memory in the server's process.
    """

    def __init__(
        self,
        sender: Any,
        *,
        ticket: str,
        stream: bool,
        renderer: Renderer,
        closed: Callable[[], None],
        request_id: str | None = None,
    ) -> None:
        self._sender = sender
        self._renderer = renderer
        self._ticket = text_array([ticket])
        self._stream = stream
        self._closed = closed
        self._named = {"fields": {"request_id": request_id}}
        self._held: list[Event] = []
        self._lock = threading.Lock()
        self._over = False
        self._broken = False

    def send(self, events: Sequence[Event], *, final: bool) -> None:
        """See :class:`heptagram_backend.engine_api.Sink`."""
        with self._lock:
            if self._over:
                _log.error("%d events after the last one were dropped", len(events), extra=self._named)
                return
            if not self._stream:
                self._held.extend(event for event in events if not isinstance(event, Start | Ping))
                if not final:
                    return
                events = self._held
            try:
                response = self._response(events)
            except Exception as error:  # the engine's thread and the other requests go on
                fault = contained(error, where="generate")
                if not final:  # an error without FINAL leaks the ensemble's request: the watcher ends it instead
                    self._broken = True
                    return
                response = pb_utils.InferenceResponse(error=triton_error(fault))
            self._deliver(response, final=final)
        if final:
            self._closed()

    def fail(self, error: HeptagramError) -> None:
        """Report an error and FINAL in one send; an error alone would leak the ensemble's request for ever."""
        with self._lock:
            if self._over:
                _log.error("an error after the last event was dropped: %s", error, extra=self._named)
                return
            self._deliver(pb_utils.InferenceResponse(error=triton_error(error)), final=True)
        self._closed()

    def abandoned(self) -> bool:
        """The client cancelled or died, as far as Triton tells this step, or sending to it failed."""
        with self._lock:
            return not self._over and (self._broken or bool(self._sender.is_cancelled()))

    def _response(self, events: Sequence[Event]) -> Any:
        as_event = self._stream and self._renderer.tells_failures
        if not as_event and events and isinstance(events[-1], Failure):
            return pb_utils.InferenceResponse(error=failure_error(events[-1]))
        return pb_utils.InferenceResponse([*self._renderer.render(events), pb_utils.Tensor(names.TICKET, self._ticket)])

    def _deliver(self, response: Any, *, final: bool) -> None:
        self._over = final
        try:
            if final:
                self._sender.send(response, flags=_FINAL)
            else:
                self._sender.send(response)
        except Exception as error:  # whatever the stub raises, the engine's thread and the other requests go on
            _log.warning("a response could not be sent: %s", error, extra=self._named)
            self._broken = True
