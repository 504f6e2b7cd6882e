"""Folders that appear in the cache whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from heptagram_backend.cache import VARIABLE, cache_dir, locked, published


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "heptagram"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache" / "heptagram"


def test_a_folder_replaces_the_old_one_whole(tmp_path: Path) -> None:
    target = tmp_path / "thing"
    for content in ("old", "new"):
        with locked(target), published(target) as folder:
            (folder / content).write_text(content)
    assert [path.name for path in target.iterdir()] == ["new"]
    assert {path.name for path in tmp_path.iterdir()} == {"thing", ".thing.lock"}


def test_a_failure_changes_nothing_and_a_killed_one_is_cleared(tmp_path: Path) -> None:
    target = tmp_path / "thing"
    (tmp_path / ".thing.killed").mkdir()
    with pytest.raises(FileNotFoundError), published(target) as folder:
        (folder / "no such folder" / "file").write_text("")
    assert list(tmp_path.iterdir()) == []
