"""From responses to events, and when a stream is over. No I/O; the synchronous and the asyncio stream share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heptagram_client.errors import ProtocolError, RequestRefusedError
from heptagram_client.transports.base import Response
from heptagram_wire.codec import decode_events
from heptagram_wire.errors import INVALID_JSON, WireError
from heptagram_wire.events import Event, Failure, Finish
from heptagram_wire.requests import encode_request
from heptagram_wire.tensors import CHAT

# After the terminal event the client waits this long for Triton's FINAL flag, so that an ordinary end is no cancel.
FINAL_GRACE_S = 0.5


@dataclass(frozen=True, slots=True)
class Options:
    """How requests are sent.

    ``idle_timeout``: seconds without any response; the server pings about twice a second. ``response_timeout``: the
    same for a request with ``stream`` false, whose only response comes at the end. ``None`` waits for ever.
    """

    model: str = CHAT
    idle_timeout: float | None = 30.0
    response_timeout: float | None = 600.0

    def timeout_for(self, request: Mapping[str, object]) -> float | None:
        return self.response_timeout if request.get("stream") is False else self.idle_timeout


def request_body(request: Mapping[str, object]) -> str:
    """The JSON text of a request; what JSON cannot say is refused as the server would."""
    try:
        return encode_request(request)
    except ValueError as error:
        raise RequestRefusedError(WireError(INVALID_JSON, str(error))) from error


class EventReader:
    """``finished``: a terminal event was read. ``ended``: the server sends no more."""

    def __init__(self) -> None:
        self.finished = False
        self.ended = False

    def read(self, response: Response | None) -> tuple[Event, ...]:
        """The events of the next response; ``None`` is the end of the stream.

        Raises:
            ProtocolError: broken events, events after the terminal one, or an end without one.
        """
        self.ended = self.ended or response is None or response.final
        try:
            events = decode_events(response.events) if response else ()
        except ValueError as error:
            raise ProtocolError(str(error)) from error
        for event in events:
            if self.finished:
                raise ProtocolError(f"a {type(event).__name__} event came after the end of the stream")
            self.finished = isinstance(event, Finish | Failure)
        if self.ended and not self.finished:
            raise ProtocolError("the stream ended without a `finish` or `failure` event")
        return events
