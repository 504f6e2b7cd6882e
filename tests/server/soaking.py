"""Many requests from many clients at once, and what each process of the server holds meanwhile."""

from __future__ import annotations

import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from heptagram_backend.server.process import ServerProcess
from heptagram_backend.server.segments import PREFIX, SHARED_MEMORY
from heptagram_client import Client

CLIENTS = 8


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, and after how many events its client leaves; ``None`` reads it to its end."""

    request: Mapping[str, Any]
    leave_after: int | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """What one process holds: its open files by kind, and ``rss`` in KiB."""

    threads: int
    files: Counter[str]
    rss: float


def holdings(process: ServerProcess) -> tuple[dict[str, Holding], int]:
    """What the server and each stub hold, and the bytes of their shared memory, once no client is connected."""
    server = psutil.Process(process.pid)
    _wait_alone(server)
    held = {"tritonserver": _holding(server)}
    prefix = ""
    for stub in server.children():
        arguments = stub.cmdline()
        held[Path(arguments[1]).parts[-3]] = _holding(stub)
        found = PREFIX.search(arguments[2])
        assert found is not None
        prefix = found[0]
    used = sum(path.stat().st_blocks * 512 for path in SHARED_MEMORY.glob(f"{prefix}*"))
    return held, used


def _wait_alone(server: psutil.Process, timeout_s: float = 10.0) -> None:
    """Wait until it has closed every connection: it hears that a client has left when it next looks."""
    deadline = time.monotonic() + timeout_s
    while left := [each for each in server.net_connections("tcp") if each.status != psutil.CONN_LISTEN]:
        assert time.monotonic() < deadline, f"clients have left, their connections are still open: {left}"
        time.sleep(0.02)


def _holding(process: psutil.Process) -> Holding:
    return Holding(process.num_threads(), _open_files(process), process.memory_info().rss / 1024)


def _open_files(process: psutil.Process) -> Counter[str]:
    """How many of each kind: ``socket``, ``pipe``, ``anon_inode`` with its kind, or the path of a file.

    Other servers' starts take an old log out of its folder, which changes nothing of what is open.
    """
    kinds: Counter[str] = Counter()
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            what = str(link.readlink()).removesuffix(" (deleted)")
            kinds[re.sub(r"^(socket|pipe):.*", r"\1", what)] += 1
    return kinds


def play(urls: Sequence[str], asks: Sequence[Ask], *, seed: int) -> None:
    """Send all of ``asks``, some at a time, each to one of ``urls``."""
    clients = [Client(url, idle_timeout=60) for url in urls]
    chosen = random.Random(seed)
    plans = [(chosen.choice(clients), ask) for ask in asks]
    try:
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(lambda plan: _send(*plan), plans))
    finally:
        for client in clients:
            client.close()


def _send(client: Client, ask: Ask) -> None:
    with client.stream(ask.request) as events:
        for number, _ in enumerate(events, start=1):
            if number == ask.leave_after:
                return
    assert ask.leave_after is None, "it ended before its client left"


@dataclass(frozen=True, slots=True)
class Growth:
    """Over the measured part: the ends for what is counted, and KiB a request for resident memory."""

    name: str
    first: Holding
    last: Holding
    slope: float

    def __str__(self) -> str:
        return (
            f"{self.name:<13} threads {self.first.threads:>3} -> {self.last.threads:<3} "
            f"files {self.first.files.total():>3} -> {self.last.files.total():<3} "
            f"memory {self.first.rss / 1024:7.1f} -> {self.last.rss / 1024:7.1f} MiB, {self.slope:+.2f} KiB a request"
            + "".join(f"\n{'':<13} {count} more of {kind}" for kind, count in self.opened.items())
        )

    @property
    def opened(self) -> Counter[str]:
        """What is open at the end beyond what was at the beginning, by kind."""
        return self.last.files - self.first.files


def soak(
    process: ServerProcess,
    urls: Sequence[str],
    draw: Callable[[random.Random], Ask],
    *,
    settle: Callable[[], object],
    warm_up: int,
    rounds: int,
    each: int,
) -> tuple[list[Growth], tuple[int, int]]:
    """``warm_up`` requests, then ``rounds`` of ``each``; a sample at rest before the first and after each round.

    Returns:
        The growth of each process, and the bytes of shared memory at both ends.
    """
    source = random.Random(7)
    play(urls, [draw(source) for _ in range(warm_up)], seed=0)
    settle()
    samples = [holdings(process)]
    for number in range(rounds):
        play(urls, [draw(source) for _ in range(each)], seed=number + 1)
        settle()
        samples.append(holdings(process))
    growth = measured([number * each for number in range(len(samples))], [held for held, _ in samples])
    return growth, (samples[0][1], samples[-1][1])


def measured(requests: Sequence[int], samples: Sequence[Mapping[str, Holding]]) -> list[Growth]:
    """Each process over all ``samples``, which were taken when so many requests had ended."""
    growth = []
    for name in samples[0]:
        held = [sample[name] for sample in samples]
        slope = statistics.linear_regression(requests, [one.rss for one in held]).slope
        growth.append(Growth(name, held[0], held[-1], slope))
    return growth
