"""What one look found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "missing"]


@dataclass(frozen=True, slots=True)
class Finding:
    """``missing``: without it nothing is served as promised. ``note``: worth knowing, it can be lived with."""

    name: str
    state: State
    found: str
    advice: str = ""


def guarded(name: str, look: Callable[[], Finding]) -> Finding:
    """What ``look`` finds; if it breaks down, that is the finding."""
    try:
        return look()
    except Exception as error:  # one broken part must not hide what can be said of the others
        return Finding(name, "missing", f"cannot be examined: {type(error).__name__}: {error}", "report this as a bug")
