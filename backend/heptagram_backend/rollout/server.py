"""What the running server says of its versions: states by its index, requests in flight by its metrics."""

from __future__ import annotations

import re
import urllib.request
from collections import Counter
from collections.abc import Mapping
from typing import Final

from heptagram_backend.server.control import ControlError, ControlKeyError, ModelControl
from heptagram_backend.server.process import Address

_IN_FLIGHT: Final = re.compile(r'^heptagram_(?:running|waiting)\{.*version="(\d+)".*\} (\S+)$', re.MULTILINE)
_TIMEOUT_S: Final = 5.0


def states_of(control: ModelControl) -> Mapping[tuple[str, str], str] | None:
    """State by model and version; None when the server does not answer.

    Raises:
        ControlKeyError: it answers, but not us.
    """
    try:
        return control.states()
    except ControlKeyError:
        raise
    except ControlError:
        return None


def in_flight_of(address: Address) -> Mapping[int, int] | None:
    """Requests that run or wait, by version; None when the metrics do not answer."""
    try:
        with urllib.request.urlopen(address.metrics_url, timeout=_TIMEOUT_S) as response:
            text = response.read().decode()
    except (OSError, ValueError):
        return None
    counts: Counter[int] = Counter()
    for version, count in _IN_FLIGHT.findall(text):
        counts[int(version)] += int(float(count))
    return counts
