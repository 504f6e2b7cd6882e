"""Compiled kernels are found again by what they were compiled from and with, and by nothing less."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from heptagram_kernels import compile_cache


def test_a_changed_source_or_toolchain_is_another_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernel.py").write_text("a = 1\n")
    first = compile_cache.identity(tmp_path)
    assert compile_cache.identity(tmp_path) == first
    (tmp_path / "kernel.py").write_text("a = 2\n")
    second = compile_cache.identity(tmp_path)
    monkeypatch.setattr(compile_cache, "version", lambda _: "99")
    assert len({first, second, compile_cache.identity(tmp_path)}) == 3


def test_the_compilers_are_pointed_to_the_folder_unless_they_are_told_another(tmp_path: Path) -> None:
    environment = {compile_cache.FOLDER: str(tmp_path), "TRITON_CACHE_DIR": "/elsewhere"}
    folder = compile_cache.use(environment)
    assert folder == tmp_path / "compiled" / compile_cache.identity()
    assert folder.is_dir()
    assert environment["NUMBA_CACHE_DIR"] == str(folder / "numba")
    assert environment["TRITON_CACHE_DIR"] == "/elsewhere"


@pytest.mark.parametrize("off", ["switch", "no folder"])
def test_without_reuse_nothing_is_set(off: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {"switch": {compile_cache.SWITCH: "0"}, "no folder": {compile_cache.FOLDER: str(tmp_path / "file")}}
    before = dict(environment[off])
    assert compile_cache.use(environment[off]) is None
    assert environment[off] == before


def test_it_stands_before_anything_that_compiles() -> None:
    code = "import sys, heptagram_kernels.compile_cache; assert not {'torch', 'numba', 'triton'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))
