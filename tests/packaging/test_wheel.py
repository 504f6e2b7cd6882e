"""The distribution: what the wheel holds, and what a light install needs."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from heptagram_gateway.page.static import PATHS

PROJECT = Path(__file__).resolve().parents[2]
OURS = ("backend", "kernels", "wire", "telemetry", "client", "gateway")
PACKAGES = {f"heptagram_{name}" for name in OURS}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in the wheel built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    code = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, folder], cwd=PROJECT, check=True, capture_output=True, text=True)
    with zipfile.ZipFile(folder / done.stdout.strip().splitlines()[-1]) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: set[str]) -> None:
    tops = {name.split("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES
    assert {f"{package}/py.typed" for package in PACKAGES} <= wheel
    assert not [name for name in wheel if "__pycache__" in name]


def test_the_wheel_holds_the_whole_model_repository(wheel: set[str]) -> None:
    files = [path for path in (PROJECT / "model_repository").rglob("*") if path.is_file()]
    names = {str(path.relative_to(PROJECT)) for path in files if "__pycache__" not in path.parts}
    assert {f"heptagram_backend/{name}" for name in names} <= wheel


def test_the_wheel_holds_the_status_page(wheel: set[str]) -> None:
    assert {f"heptagram_gateway/page/files/{name}" for name in PATHS.values()} <= wheel


def test_a_light_install_needs_only_the_client(wheel: set[str]) -> None:
    needed = [text for text in importlib.metadata.requires("heptagram") or [] if "extra ==" not in text]
    names = {re.split(r"[^A-Za-z0-9_-]", text, maxsplit=1)[0] for text in needed}
    assert names == {"numpy", "tritonclient"}


def test_commands_are_found() -> None:
    found = {entry.name for entry in importlib.metadata.entry_points(group="heptagram.commands")}
    assert {"chat", "demo", "serve"} <= found
