"""Makefile, CI script and Dockerfile agree with the rest of the project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from docker.check import instructions
from heptagram_backend.checkpoint import EMBEDDED

PROJECT = Path(__file__).resolve().parents[2]


def test_shipped_models_are_in_the_requirements() -> None:
    wanted = {shipped.requirement.split()[-1] for shipped in EMBEDDED.values()}
    lines = (PROJECT / "requirements-shipped.txt").read_text().splitlines()
    pinned = {line for line in lines if line and not line.startswith("#")}
    assert wanted <= pinned
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", line) for line in pinned)


def test_torch_is_pinned_for_the_demo() -> None:
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(re.fullmatch(r"torch==\d+\.\d+\.\d+", requirement) for requirement in extras["demo"])


def test_make_targets() -> None:
    targets = ["serve", "demo", "install", "test", "check", "test-server", "test-full"]
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", *targets], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_make_says_which_python_is_missing(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "requirements-shipped.txt", "requirements-tests.txt"):
        (tmp_path / name).write_bytes((PROJECT / name).read_bytes())
    done = subprocess.run(["make", "install", "PYTHON="], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "No Python 3.11 or 3.12 found" in done.stderr


def test_the_preflight_needs_nothing_installed(tmp_path: Path) -> None:
    path = os.pathsep.join(str(PROJECT / folder) for folder in ("backend", "client"))
    subprocess.run(
        [sys.executable, "-S", "-m", "heptagram_backend.server.preflight"],
        env={"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
        check=True,
    )


def test_the_dockerfile_is_of_steps_that_the_check_knows() -> None:
    steps = list(instructions((PROJECT / "docker" / "cpu.Dockerfile").read_text()))
    assert {keyword for keyword, _ in steps} <= {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "EXPOSE", "CMD"}
    assert steps[0][0] == "FROM"
    assert steps[-1][0] == "CMD"


def test_the_ci_script_is_executable_and_parses() -> None:
    script = PROJECT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)
