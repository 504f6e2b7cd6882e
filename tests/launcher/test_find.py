"""Finding a tritonserver among several, and what is said where there is none."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
import sysconfig
from pathlib import Path

import pytest

from heptagram_backend.errors import LaunchError
from heptagram_backend.server import checks, find
from heptagram_backend.server.find import TritonInstall, find_triton, wheel_obstacle

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def make_root(root: Path, *, python: str = HERE, version: str | None = None, backend: bool = True) -> Path:
    """A folder that looks like an installation of tritonserver, as NVIDIA's containers lay it out."""
    (root / "bin").mkdir(parents=True)
    (root / "lib").mkdir()
    server = root / "bin" / "tritonserver"
    server.write_text("#!/bin/sh\n")
    server.chmod(0o755)
    if backend:
        folder = root / "backends" / "python"
        folder.mkdir(parents=True)
        (folder / "libtriton_python.so").write_bytes(b"elf")
        (folder / "triton_python_backend_utils.py").write_text("")
        (folder / "triton_python_backend_stub").write_bytes(b"\0libpython" + python.encode() + b".so.1.0\0")
    if version:
        (root / "TRITON_VERSION").write_text(f"{version}\n")
    return root


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any tritonserver; returns an empty folder."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(find, "CONTAINER_ROOT", tmp_path / "opt")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    return tmp_path


def test_path_wins_over_opt(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_root(nothing / "opt", version="2.60.0")
    assert find_triton().binary == nothing / "opt" / "bin" / "tritonserver"
    own = make_root(nothing / "own")
    monkeypatch.setenv("PATH", str(own / "bin"))
    assert find_triton() == TritonInstall(
        source="PATH",
        binary=own / "bin" / "tritonserver",
        python_backend=own / "backends" / "python",
        stub=own / "backends" / "python" / "triton_python_backend_stub",
        stub_python=HERE,
        libraries=(own / "lib",),
        version=None,
    )


def test_a_server_without_python_backend_is_passed_over(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = make_root(nothing / "bare", backend=False)
    monkeypatch.setenv("PATH", str(bare / "bin"))
    with pytest.raises(LaunchError, match=r"bare .PATH. has no Python backend; "):
        find_triton()
    make_root(nothing / "opt", version="2.60.0")
    assert find_triton().version == (2, 60)


def test_the_wheel_is_found() -> None:
    install = find_triton()
    assert install.stub_python == HERE
    assert install.binary.exists()


@pytest.mark.parametrize(
    ("system", "machine", "libc", "says"),
    [
        ("Linux", "aarch64", ("glibc", "2.36"), "for Linux x86_64 only, this is Linux aarch64"),
        ("Darwin", "arm64", ("", ""), "for Linux x86_64 only"),
        ("Linux", "x86_64", ("glibc", "2.31"), "needs glibc 2.35 or newer, this system has 2.31"),
        ("Linux", "x86_64", ("musl", "1.2"), "needs glibc, this system has another C library"),
    ],
)
def test_why_the_wheel_cannot_be_installed(system: str, machine: str, libc: tuple[str, str], says: str) -> None:
    message = wheel_obstacle(system=system, machine=machine, libc=libc)
    assert message is not None
    assert says in message
    assert "PATH" in message
    assert "\n" not in message


def test_a_missing_wheel_names_the_extra(nothing: Path) -> None:
    with pytest.raises(LaunchError, match=r"pip install 'heptagram\[demo\]'"):
        find_triton()
    assert wheel_obstacle(system="Linux", machine="x86_64", libc=("glibc", "2.35")) is None


def test_a_stub_for_another_python_is_refused(nothing: Path) -> None:
    make_root(nothing / "opt", python="3.10", version="2.60.0")
    with pytest.raises(LaunchError, match=r"built for Python 3\.10, .* with python3\.10"):
        checks.check_install(find_triton())


@pytest.mark.parametrize(
    ("triton", "numpy", "refused"),
    [("2.51.0", "2.1.0", True), ("2.51.0", "1.26.4", False), ("2.52.0", "2.1.0", False), (None, "2.1.0", False)],
)
def test_numpy_2_needs_a_newer_stub(
    nothing: Path, monkeypatch: pytest.MonkeyPatch, triton: str | None, numpy: str, refused: bool
) -> None:
    make_root(nothing / "opt", version=triton)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: numpy)
    if refused:
        with pytest.raises(LaunchError, match=r"crashes on strings with numpy 2\.1\.0: pip install 'numpy<2'"):
            checks.check_install(find_triton())
    else:
        checks.check_install(find_triton())


def test_a_missing_libpython_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: None)
    monkeypatch.setattr(sys, "base_prefix", "/nowhere")
    monkeypatch.setattr(checks, "find_library", lambda name: None)
    with pytest.raises(LaunchError, match=rf"libpython{HERE}\.so\.1\.0 is missing.*apt install libpython{HERE}"):
        checks.libpython_folder()
