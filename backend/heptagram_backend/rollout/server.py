"""What the running server says of its versions: states by its index, requests by its metrics."""

from __future__ import annotations

import re
import urllib.request
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from heptagram_backend.metric_table import COUNTERS, GAUGES, PREFIX
from heptagram_backend.server.control import ControlError, ControlKeyError, ModelControl
from heptagram_backend.server.process import Address

_IN_FLIGHT: Final = {PREFIX + metric.name for metric in GAUGES if metric.field in ("running", "waiting")}
_ENDED: Final = {
    f"{PREFIX}{metric.name}_total" for metric in COUNTERS if metric.field in ("finished", "failed", "cancelled")
}
_NUMBER: Final = re.compile(r'^(\w+)\{.*version="(\d+)".*\} (\S+)$', re.MULTILINE)
_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Requests:
    """Of each version: how many run or wait, and how many have ended since it was loaded."""

    in_flight: Mapping[int, int]
    ended: Mapping[int, int]


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


def requests_of(address: Address) -> Requests | None:
    """None when the metrics do not answer."""
    try:
        with urllib.request.urlopen(address.metrics_url, timeout=_TIMEOUT_S) as response:
            text = response.read().decode()
    except (OSError, ValueError):
        return None
    in_flight: Counter[int] = Counter()
    ended: Counter[int] = Counter()
    for name, version, count in _NUMBER.findall(text):
        if name in _IN_FLIGHT or name in _ENDED:
            (in_flight if name in _IN_FLIGHT else ended)[int(version)] += int(float(count))
    return Requests(in_flight, ended)
