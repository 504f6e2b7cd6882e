"""The first half of an ordered stop: nobody new is admitted, and what runs comes to its end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from heptagram_backend.server.control import ControlError
from heptagram_backend.server.process import EXIT_TIMEOUT_S

_ENSEMBLE: Final = re.compile(r'^\s*platform:\s*"ensemble"', re.MULTILINE)
_LOOK_EVERY_S: Final = 0.1


class Control(Protocol):
    """See :class:`heptagram_backend.server.control.ModelControl`."""

    def states(self) -> Mapping[tuple[str, str], str]: ...

    def unload(self, model: str) -> None: ...


def drain(
    control: Control,
    repository: Path,
    *,
    timeout_s: float = EXIT_TIMEOUT_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> float:
    """Unload the ensembles of ``repository`` and wait until their requests have ended.

    subtle: behind a SIGTERM tritonserver (2.51) takes no further step of an ensemble, so streams fall silent and are
    waited for in vain. One that is unloaded before goes on with those it has.

    Returns:
        The seconds that are left of ``timeout_s``; 0 where some have not ended.
    """
    deadline = clock() + timeout_s
    ensembles = {path.parent.name for path in repository.glob("*/config.pbtxt") if _ENSEMBLE.search(path.read_text())}
    try:
        for name in {name for (name, _), state in control.states().items() if state == "READY"} & ensembles:
            control.unload(name)
        while any(name in ensembles and state == "UNLOADING" for (name, _), state in control.states().items()):
            if clock() >= deadline:
                return 0.0
            sleep(_LOOK_EVERY_S)
    except ControlError:  # it answers nobody yet, or no more
        pass
    return max(deadline - clock(), 0.0)
