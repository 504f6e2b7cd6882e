"""How relay tells generate that a client has left: one datagram with a single-use ticket.

generate owns the receiving socket. Its address is in Linux' abstract namespace, under a random name, so nothing is
left on disk and versions never mix. The tickets are unguessable; a datagram with any other content has no effect.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import socket
from dataclasses import dataclass
from typing import Final

_PREFIX: Final = "heptagram-cancel-"
_ADDRESS: Final = re.compile(_PREFIX + r"[0-9a-f]{32}")
_MAX_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class Ticket:
    """What travels with every response: which request to cancel, and where to say so."""

    ticket: str
    address: str

    def to_json(self) -> str:
        return json.dumps({"ticket": self.ticket, "address": self.address}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Ticket | None:
        """Read a ticket back; ``None`` when it is not one, or when its address is not one of ours."""
        try:
            data = json.loads(text)
            ticket, address = data["ticket"], data["address"]
        except (ValueError, KeyError, TypeError):
            return None
        if not isinstance(ticket, str) or not isinstance(address, str) or not _ADDRESS.fullmatch(address):
            return None
        return cls(ticket, address)


class CancelInbox:
    """The receiving end, one for each version and instance of generate."""

    def __init__(self) -> None:
        self.address = _PREFIX + secrets.token_hex(16)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.bind("\0" + self.address)

    def issue(self) -> Ticket:
        """A new ticket for this inbox."""
        return Ticket(secrets.token_hex(16), self.address)

    def receive(self, timeout: float) -> str | None:
        """The next ticket that arrives within ``timeout`` seconds (> 0), or ``None``."""
        self._socket.settimeout(timeout)
        try:
            return self._socket.recv(_MAX_BYTES).decode("ascii", errors="replace")
        except TimeoutError:
            return None

    def close(self) -> None:
        self._socket.close()


class CancelOutbox:
    """The sending end, one for each instance of relay. Never blocks, never raises."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)

    def send(self, ticket: Ticket) -> bool:
        """Send a ticket home; False when the inbox is full or gone, in which case a later response tries again."""
        with contextlib.suppress(OSError, UnicodeEncodeError):
            self._socket.sendto(ticket.ticket.encode("ascii"), "\0" + ticket.address)
            return True
        return False

    def close(self) -> None:
        self._socket.close()
