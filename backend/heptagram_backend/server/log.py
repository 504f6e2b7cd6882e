"""Reading the server's log: new lines as they come, what they say of progress, and what went wrong."""

from __future__ import annotations

import fcntl
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from heptagram_backend.cache import cache_dir

_KEPT_LOGS = 20
_LAST_LINES = 15
_LOADING = re.compile(r'"loading: (\S+?)(?::\d+)?"')
_LOADED = re.compile(r"successfully loaded '([^']+)'")
_OURS = re.compile(r"heptagram: (.*?)\"?$")
_FAULT = re.compile(r"failed to load '\S+' version|^error:|^Traceback|Error: ")
# Tables of options, and what Triton says on every machine without a GPU.
_NOISE = re.compile(r"^[+|]|^\s*$|CudaDriverHelper|CUDA|NVML|GPU|pinned|Timeout \d+: Found")
# The head of a line of Triton's log: level and date, time, process, place.
_HEAD = re.compile(r"^[IWEF]\d{4} \S+ \d+ \S+\] ")


def new_log(program: str = "tritonserver") -> Path:
    """A fresh log file's path in the cache; the oldest ones of this program are removed, but for those in use."""
    folder = cache_dir() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob(f"{program}-*.log"))[: 1 - _KEPT_LOGS]:
        with suppress(OSError), open(old, "rb") as handle:  # it is gone, or in use
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            old.unlink()
    return folder / f"{program}-{time.strftime('%Y%m%d-%H%M%S')}-{time.monotonic_ns() % 1_000_000:06d}.log"


def open_log(path: Path) -> BinaryIO:
    """Open a log to be a child's output. It counts as in use until the last process that has inherited it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    output = open(path, "ab")  # noqa: SIM115
    fcntl.flock(output, fcntl.LOCK_SH)
    return output


class LogFollower:
    """Gives each complete line of a growing file once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def lines(self) -> list[str]:
        with open(self._path, "rb") as handle:
            handle.seek(self._offset)
            data = handle.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        return complete.decode("utf-8", "replace").splitlines()


def status_of(line: str) -> str | None:
    """What a line says of progress, for a person. A model may say more by logging ``heptagram: TEXT``."""
    if match := _OURS.search(line):
        return match[1]
    if match := _LOADING.search(line):
        return f"loading {match[1]}"
    if match := _LOADED.search(line):
        return f"loaded {match[1]}"
    return None


def failure_report(path: Path) -> str:
    """The lines of a log that name a fault, its last lines, and where the rest is."""
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = [_HEAD.sub("", line.rstrip()) for line in text.splitlines() if not _NOISE.search(line)]
    faults = [line for line in lines[:-_LAST_LINES] if _FAULT.search(line)]
    shown = [*faults[:_LAST_LINES], *lines[-_LAST_LINES:]]
    # Triton writes a Python traceback as one line with escaped line breaks.
    readable = "\n".join(shown).replace("\\n", "\n").splitlines()
    return "\n".join([*(f"  {line}" for line in readable if line.strip()), f"log: {path}"])
