"""What a number needs beside it to mean anything: where, when and how it was measured."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
_PACKAGES: Final = ("torch", "transformers", "xgrammar", "numpy", "nvidia-pytriton")


def describe() -> dict[str, Any]:
    """Machine, versions, commit, command and date, as JSON."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python", "-m", *_module(), *sys.argv[1:]]),
        "commit": _commit(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def headline(machine: Mapping[str, Any]) -> str:
    """One line for above a table."""
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items() if number)
    return (
        f"{machine['date']}, {machine['processor']}, {machine['cores']} cores, load average "
        f"{machine['load_average']:.1f} at the start, Python {machine['python']}, {packages}, "
        f"commit {machine['commit']}\n`{machine['command']}`"
    )


def _module() -> list[str]:
    spec = sys.modules["__main__"].__spec__
    return [spec.name.removesuffix(".__main__")] if spec else [sys.argv[0]]


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
