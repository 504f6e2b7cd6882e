"""What a release records beside its options, and what becomes of a world that is another one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heptagram_backend.cache import VARIABLE
from heptagram_backend.errors import ReleaseError
from heptagram_backend.recorded import (
    check_recorded,
    check_versions,
    check_width,
    installed_versions,
    recorded_adapter,
    recorded_checkpoint,
    recorded_drafter,
    series,
)
from heptagram_backend.release import EngineOptions, Release

NEEDED: dict[str, Any] = {"served_model_name": "m", "checkpoint": "c", "format": "chatml_json"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    folder = tmp_path / "checkpoint"
    (folder / "drafter").mkdir(parents=True)
    for path in (folder, folder / "drafter"):
        (path / "config.json").write_text('{"vocab_size": 300}')
        (path / "model.safetensors").write_bytes(path.name.encode())
    return folder


def written(folder: Path) -> Release:
    return Release(
        "m",
        str(folder),
        "chatml_json",
        engine=EngineOptions(drafter="drafter"),
        **recorded_checkpoint(str(folder), folder),
        **recorded_drafter("drafter", folder),
    )


def test_what_was_recorded_is_what_is_there(folder: Path) -> None:
    release = written(folder)
    assert release.vocabulary_width == 300
    check_recorded(release, folder)
    check_recorded(release, folder, whole=True)
    assert release.unrecorded == ("vocabulary", "versions", "created_at")


@pytest.mark.parametrize(("place", "what"), [("", "checkpoint"), ("drafter", "engine.drafter")])
def test_another_checkpoint_or_drafter_is_refused(folder: Path, place: str, what: str) -> None:
    release = written(folder)
    (folder / place / "model.safetensors").write_bytes(b"other")
    with pytest.raises(ReleaseError, match=rf"^{what}: the release was written for sample:\w+, but .* holds sample:"):
        check_recorded(release, folder)


def test_another_adapter_is_refused(folder: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter.json").write_text("{}")
    weights = adapter / "adapter.safetensors"
    weights.write_bytes(b"one")
    release = replace(written(folder), adapter=str(adapter), **recorded_adapter(str(adapter)))
    release = replace(release, engine=EngineOptions(), drafter_hash=None)
    check_recorded(release, tmp_path / "merged")  # not what it was made of
    assert "adapter_hash" not in release.unrecorded
    assert "adapter_hash" in replace(release, adapter_hash=None).unrecorded
    weights.write_bytes(b"two")
    with pytest.raises(ReleaseError, match=r"^adapter: the release was written for"):
        check_recorded(release, tmp_path / "merged")


def test_a_gguf_file_stands_for_what_it_is_converted_to(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"gguf")
    release = replace(written(folder), checkpoint=str(file), **recorded_checkpoint(str(file), folder))
    (folder / "config.json").write_text("{}")  # as another version of a converter writes it
    check_recorded(release, folder)
    file.write_bytes(b"other")
    with pytest.raises(ReleaseError, match=r"^checkpoint: "):
        check_recorded(release, folder)


def test_an_old_file_is_compared_with_nothing(folder: Path) -> None:
    old = Release.parse(NEEDED)
    check_recorded(old, folder)
    check_width(old.vocabulary_width, 7)
    assert old.unrecorded == ("checkpoint_hash", "vocabulary", "vocabulary_width", "versions", "created_at")


def test_another_width_is_refused() -> None:
    check_width(300, 300)
    with pytest.raises(ReleaseError, match="vocabulary_width: the release was written for 300, but the logits are 301"):
        check_width(300, 301)


@pytest.mark.parametrize(("version", "promised"), [("2.13.0+cpu", "2"), ("0.2.7", "0.2"), ("5.24.0", "5"), ("0", "0")])
def test_series(version: str, promised: str) -> None:
    assert series(version) == promised


@pytest.mark.parametrize(
    ("recorded", "found", "outcome"),
    [
        ("2.13.0", "2.13.0", None),
        ("2.13.0+cpu", "2.13.0+cu126", None),
        ("2.13.0", "2.14.1", "warned"),
        ("0.2.7", "0.2.9", "warned"),
        ("0.2.7", None, "warned"),  # without a grammar library ordinary requests are served
        ("0.2.7", "0.3.0", "refused"),
        ("5.24.0", "6.0.0", "refused"),
    ],
)
def test_packages_are_compared_by_their_series(
    monkeypatch: pytest.MonkeyPatch, recorded: str, found: str | None, outcome: str | None
) -> None:
    monkeypatch.setattr("heptagram_backend.recorded._installed", lambda package: found)
    said = f"versions.torch: the release was written beside {recorded}, installed is {found or 'none'}"
    if outcome == "refused":
        with pytest.raises(ReleaseError, match=said.replace(".", r"\.")):
            check_versions({"torch": recorded})
    else:
        assert check_versions({"torch": recorded}) == ([said] if outcome else [])
    assert len(check_versions({"heptagram": "99.0"})) == 1


def test_what_is_installed_agrees_with_itself() -> None:
    assert {"heptagram", "torch", "transformers"} <= installed_versions().keys()
    assert check_versions(installed_versions()) == []


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"checkpoint_hash": "sha256:0"}, "checkpoint_hash: must be `sha256:` and 64"),
        ({"drafter_hash": "x"}, "drafter_hash: must be"),
        ({"adapter_hash": "x"}, "adapter_hash: must be"),
        ({"adapter": 3}, "adapter: must be text"),
        ({"vocabulary_width": 0}, "vocabulary_width: must be at least 1"),
        ({"vocabulary_width": "300"}, "vocabulary_width: must be a whole number"),
        ({"versions": {"torch": 2.13}}, r"versions\.torch: must be text, not 2\.13; put it in quotes"),
        ({"versions": ["torch"]}, "versions: must be a mapping"),
        ({"created_at": "yesterday"}, "created_at: must be a time of ISO 8601"),
        ({"created": "2026-01-01"}, "there is no created; known are"),
    ],
)
def test_what_is_recorded_wrongly_is_refused(value: dict[str, Any], said: str) -> None:
    with pytest.raises(ReleaseError, match=said):
        Release.parse(NEEDED | value)


def test_releases_that_were_written_at_different_times_are_the_same() -> None:
    first, second = (Release.parse(NEEDED | {"created_at": f"2026-11-0{day}T10:00:00+00:00"}) for day in (1, 2))
    assert first == second
    assert first.created_at != second.created_at
