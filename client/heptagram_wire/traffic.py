"""How requests are shared among versions: a parameter of an ensemble's configuration.

It is written to the ensemble's ``config.pbtxt``, so a reload keeps it, and Triton tells it to every front that asks for
the configuration, on whatever machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

PARAMETER: Final = "heptagram_traffic"
WHOLE: Final = 100


def traffic_text(weights: Mapping[int, int]) -> str:
    """The parameter's value: percents by version."""
    return json.dumps({str(version): weight for version, weight in sorted(weights.items())})


def read_traffic(text: str) -> dict[int, int]:
    """Percents by version, which add up to 100.

    Raises:
        ValueError: it is no such value.
    """
    data: Any = json.loads(text)
    if not isinstance(data, dict) or not all(type(weight) is int and weight >= 0 for weight in data.values()):
        raise ValueError(f"not percents by version: {text!r}")
    weights = {int(version): weight for version, weight in data.items()}
    if sum(weights.values()) != WHOLE:
        raise ValueError(f"percents that add up to {sum(weights.values())}: {text!r}")
    return weights
