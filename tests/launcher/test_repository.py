"""Copies of a model repository with other values in ``release.yaml``."""

from __future__ import annotations

from pathlib import Path

import pytest

from heptagram_backend.cache import VARIABLE
from heptagram_backend.errors import ReleaseError
from heptagram_backend.server.launch import models_of
from heptagram_backend.server.repository import Overrides, project_repository, releases_of, write_repository


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv(VARIABLE, str(folder))
    return folder


def test_the_project_has_a_repository() -> None:
    assert {"chat", "generate", "preprocess", "relay"} <= set(models_of(project_repository()))
    releases = releases_of(project_repository())
    assert {path.parent.parent.name for path in releases} == {"generate", "preprocess"}
    assert len({release.checkpoint for release in releases.values()}) == 1


def test_overrides_land_in_every_release_and_nothing_else_changes() -> None:
    source = project_repository()
    overrides = Overrides(release={"served_model_name": "a b/c"}, engine={"max_num_seqs": 3})
    folder = write_repository(source, overrides)
    assert folder.name.startswith("a-b-c-")
    for path, release in releases_of(folder).items():
        original = releases_of(source)[source / path.relative_to(folder)]
        assert (release.served_model_name, release.engine.max_num_seqs) == ("a b/c", 3)
        assert release.checkpoint == original.checkpoint
        assert release.engine.max_model_len == original.engine.max_model_len
        assert release.k7_layout == original.k7_layout
    for path in source.rglob("*"):
        if path.is_file() and path.name != "release.yaml" and "__pycache__" not in path.parts:
            assert (folder / path.relative_to(source)).read_bytes() == path.read_bytes()


def test_the_same_values_give_the_same_folder_and_keep_what_was_changed_in_it() -> None:
    source, overrides = project_repository(), Overrides(engine={"max_num_seqs": 3})
    folder = write_repository(source, overrides)
    (folder / "promoted").write_text("")
    assert write_repository(source, overrides) == folder
    assert (folder / "promoted").exists()
    assert write_repository(source, Overrides(engine={"max_num_seqs": 4})) != folder


def test_a_wrong_value_leaves_nothing(cache: Path) -> None:
    with pytest.raises(ReleaseError, match=r"engine\.max_num_seqs: must be at least 1"):
        write_repository(project_repository(), Overrides(engine={"max_num_seqs": 0}))
    assert not [path for path in (cache / "repositories").iterdir() if path.is_dir()]
