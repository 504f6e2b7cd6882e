"""The engine's own numbers, from Triton's metrics port. They are kept for a moment."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import defaultdict
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import urlsplit

_LOG = logging.getLogger(__name__)
_SAMPLE: Final = re.compile(r"heptagram_(\w+)(?:\{([^}]*)\})? ([0-9.eE+-]+)")
_BUCKET: Final = re.compile(r'\ble="')
_KEPT_S: Final = 1.0
_TIMEOUT_S: Final = 2.0
_MOST_BYTES: Final = 4 << 20


class EngineNumbers:
    """``url`` is Triton's ``http://HOST:PORT/metrics``; ``None`` where nobody knows it."""

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._at = 0.0
        self._known: Mapping[str, float] | None = None
        self._asking = asyncio.Lock()
        self._warned = False

    async def read(self) -> Mapping[str, float] | None:
        """The numbers by their names without ``heptagram_``; ``None`` where there are none."""
        if self._url is None:
            return None
        async with self._asking:  # many readers are one question, and one thread
            if not self._at or time.monotonic() - self._at > _KEPT_S:
                self._known = await asyncio.to_thread(self._ask, self._url)
                self._at = time.monotonic()
            return self._known

    def _ask(self, url: str) -> Mapping[str, float] | None:
        try:
            text = _get(url)
        except (OSError, HTTPException) as error:
            if not self._warned:
                self._warned = True
                _LOG.warning("no metrics from %s (%s); this is said once", url, error)
            return None
        self._warned = False
        return numbers_of(text) or None


def numbers_of(text: str) -> dict[str, float]:
    """Our samples in Prometheus text, each summed over its labels: a model's versions share the engine's machine.

    Buckets of histograms are left out.
    """
    found: dict[str, float] = defaultdict(float)
    for line in text.splitlines():
        match = _SAMPLE.fullmatch(line)
        if match and not _BUCKET.search(match[2] or ""):
            found[match[1]] += float(match[3])
    return dict(found)


def _get(url: str) -> str:
    """Without proxies and redirects, which urllib would follow.

    Raises:
        OSError, HTTPException: no such server, or another answer than 200.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None, "the configuration has checked it"
    connection = HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        if answer.status != 200:
            raise HTTPException(f"status {answer.status}")
        return answer.read(_MOST_BYTES).decode("utf-8", "replace")
    finally:
        connection.close()
