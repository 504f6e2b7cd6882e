"""The thread of generate that ends what nobody waits for, and publishes the numbers."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from heptagram_backend.engine_api import Engine
from heptagram_backend.triton.cancel import CancelInbox
from heptagram_backend.triton.live import LiveRequests
from heptagram_backend.triton.metrics import EngineMetrics

_log = logging.getLogger(__name__)
_INTERVAL_S: Final = 0.075


class Watcher:
    """Takes tickets as they arrive and polls the senders every 75 ms. One thread, because each poll costs a message."""

    def __init__(self, *, engine: Engine, live: LiveRequests, inbox: CancelInbox, metrics: EngineMetrics) -> None:
        self._engine = engine
        self._live = live
        self._inbox = inbox
        self._metrics = metrics
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heptagram-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def cancel(self, ticket: str) -> None:
        """Use a ticket. Unknown and used ones have no effect."""
        if (id := self._live.claim(ticket)) is not None:
            self._engine.cancel(id, "client")

    def close(self) -> None:
        """Stop the thread and wait for it; idempotent."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._closing.is_set():
            try:
                ticket = self._inbox.receive(max(due - time.monotonic(), 0.001))
                if ticket is not None:
                    self.cancel(ticket)
                if time.monotonic() >= due:
                    due = time.monotonic() + _INTERVAL_S
                    self._poll()
            except Exception as error:  # one fault must not end the watch over all other requests
                _log.error("watching live requests: %r", error)

    def _poll(self) -> None:
        for ticket in self._live.abandoned():
            self.cancel(ticket)
        self._metrics.publish(self._engine.snapshot())
        if not len(self._live):
            self._live.check()
