"""What a killed launcher left behind is cleared by the next start: processes that hold ports or memory; segments."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence

import psutil

from heptagram_backend.server.segments import PREFIX, remove_abandoned_segments

_GRACE_S = 3.0


def clear_leftovers(report: Callable[[str], object] = str) -> None:
    """End orphaned servers of this user and remove abandoned segments; ``report`` is told of each, in a line."""
    orphans = _orphans()
    if orphans:
        numbers = ", ".join(str(process.pid) for process in orphans)
        report(f"ending what a killed `heptagram serve` left behind: process {numbers}")
        _end(orphans)
    removed = remove_abandoned_segments()
    if removed:
        report(f"removed {removed} shared-memory segments that a killed server left behind")


def _orphans() -> list[psutil.Process]:
    """Servers and stubs whose launcher is gone. While it lives one of them is its child, by birth or by adoption."""
    groups: dict[str, list[psutil.Process]] = defaultdict(list)
    adopted = set()
    for process in psutil.process_iter(["cmdline", "ppid", "uids"]):
        match = PREFIX.search(" ".join(process.info["cmdline"] or ()))
        if match is None or process.info["uids"].real != os.getuid():
            continue
        groups[match[0]].append(process)
        if process.info["ppid"] == int(match["launcher"]):
            adopted.add(match[0])
    return [process for prefix, group in groups.items() if prefix not in adopted for process in group]


def _end(orphans: Sequence[psutil.Process]) -> None:
    """The kernel told the server to stop when its launcher died; what is still there after a moment is killed."""
    _, alive = psutil.wait_procs(orphans, timeout=_GRACE_S)
    for process in alive:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(alive, timeout=_GRACE_S)
