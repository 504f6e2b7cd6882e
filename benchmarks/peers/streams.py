"""Runs many answers at once through every engine, in turn: ours, ours before the cache was paged, and the peers.

A burst is as many prompts as there are streams, all asked at the same moment; times count from there, so processing the
prompts is part of them. No engine keeps prefixes, because every round repeats the prompts.

The former engine is the sources of the last commit whose target kept one slot of cache for each sequence, taken from
this repository's history and run beside today's with the same packages.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final

from benchmarks.machine import ROOT
from benchmarks.peers.bursts import KINDS, US, Row
from benchmarks.peers.environments import PeerError
from benchmarks.peers.process import Worker
from benchmarks.peers.worker import How, Workload

WIDTHS: Final = (1, 4, 8, 16)
MODULES: Final = {
    "ours": "benchmarks.peers.heptagram_streams",
    "former": "benchmarks.peers.heptagram_streams",
    "vllm_cpu": "benchmarks.peers.vllm_cpu_streams",
    "transformers": "benchmarks.peers.transformers_streams",
}


@dataclass(frozen=True, slots=True)
class Arm:
    """One line of the picture: how one worker is asked. Arms may share a worker."""

    title: str
    worker: str
    drafts: int = 0


ARMS: Final = {
    US: Arm("Heptagram K7", "ours", 7),
    "heptagram_k3": Arm("Heptagram K3", "ours", 3),
    "heptagram_k0": Arm("Heptagram K0", "ours", 0),
    "former": Arm("Heptagram K7 before paging", "former", 7),
    "vllm_cpu": Arm("vLLM CPU", "vllm_cpu"),
    "transformers": Arm("transformers' continuous batching", "transformers"),
}
_FORMER: Final = "907d711251b3dd7da94143a976299146e925091d"
_SOURCES: Final = ("backend", "kernels", "client")
_AT_LEAST: Final = 4  # prompts of a round: a single stream asks so many, one after the other


def compare(
    work: Workload,
    pythons: Mapping[str, Path],
    threads: int,
    rounds: int,
    absent: dict[str, str],
    *,
    widths: Sequence[int] = WIDTHS,
    minutes: float = inf,
    say: Callable[[str], object] = str,
) -> list[Row]:
    """All bursts by all arms, every other round backwards; a peer that fails is out, and in ``absent``.

    The first round apart, none is begun that would not end within ``minutes`` if it took as long as the one before.

    Raises:
        PeerError: our own engine failed.
    """
    end = monotonic() + 60 * minutes
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        work.write(folder / "workload.json")
        workers: dict[str, Worker] = {}

        def out(name: str, error: PeerError) -> None:
            if name == "ours":
                raise error
            absent[f"{name}, streams, {threads} threads"] = str(error)
            workers.pop(name, None)

        for name in ("ours", "former", *(name for name in MODULES if name in pythons)):
            try:
                path = _former(folder) if name == "former" else ()
                python = pythons.get(name, Path(sys.executable))
                worker = Worker(python, MODULES[name], folder / "workload.json", threads, path=path)
                _warm(stack.enter_context(worker), len(work.prompts))
            except PeerError as error:
                out(name, error)
            else:
                workers[name] = worker
                say(f"{name} is ready")
        rows = [Row(kind, width, {name: [] for name in ARMS}) for kind in KINDS for width in widths]
        took = 0.0
        for number in range(rounds):
            start = monotonic()
            if number and start + took > end:
                break
            for row in rows:
                say(f"round {number + 1} of {rounds}: {row.kind}, {row.width} at once")
                asked = split(row.width, len(work.prompts))
                for name, arm in list(ARMS.items())[:: 1 if number % 2 == 0 else -1]:
                    if (found := workers.get(arm.worker)) is None:
                        continue
                    how = How(KINDS[row.kind], arm.drafts)
                    try:
                        row.rounds[name].append([found.ask_all(numbers, how) for numbers in asked])
                    except PeerError as error:
                        out(arm.worker, error)
            took = monotonic() - start
    measured = [name for name, arm in ARMS.items() if arm.worker in workers]
    return [Row(row.kind, row.width, {name: row.rounds[name] for name in measured}) for row in rows]


def _warm(worker: Worker, prompts: int) -> None:
    worker.wait()
    for constrained in KINDS.values():  # grammars are compiled, shapes are known
        for width in (1, prompts):
            worker.ask_all(range(width), How(constrained))


def split(width: int, prompts: int) -> list[range]:
    """The numbers of the prompts of each burst of a round.

    >>> split(1, 16), split(8, 16)
    ([range(0, 1), range(1, 2), range(2, 3), range(3, 4)], [range(0, 8)])
    """
    count = max(width, min(_AT_LEAST, prompts))
    return [range(start, start + width) for start in range(0, count, width)]


def _former(folder: Path) -> list[Path]:
    """The former engine's sources below ``folder``, as its commit has them.

    Raises:
        PeerError: this is no clone, or one without that commit.
    """
    command = ["git", "-C", str(ROOT), "archive", _FORMER, *_SOURCES]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise PeerError(f"git has no commit {_FORMER[:7]} here: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return [folder / name for name in _SOURCES]
