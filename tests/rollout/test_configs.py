from __future__ import annotations

from pathlib import Path

import pytest

from heptagram_backend.errors import RolloutError
from heptagram_backend.rollout.configs import (
    pin,
    pinned_version,
    read_config,
    serve_versions,
    served_versions,
    write_config,
)
from heptagram_backend.server.repository import project_repository

PAIR = ("preprocess", "generate")


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("all { }", [1, 2, 10]),
        ("latest { num_versions: 2 }", [2, 10]),
        ("specific { versions: [ 10, 1, 7 ] }", [1, 10]),
    ],
)
def test_what_a_policy_serves(tmp_path: Path, policy: str, served: list[int]) -> None:
    (tmp_path / "config.pbtxt").write_text(f'name: "m"\nversion_policy {{ {policy} }}\n')
    assert served_versions(read_config(tmp_path), [10, 2, 1]) == served


def test_without_a_policy_the_newest_is_served(tmp_path: Path) -> None:
    (tmp_path / "config.pbtxt").write_text('name: "m"\n')
    assert served_versions(read_config(tmp_path), [1, 2]) == [2]


def test_an_ensemble_is_pinned_and_keeps_its_comment(tmp_path: Path) -> None:
    config = read_config(project_repository() / "chat")
    assert pinned_version(config, PAIR) == 1
    (tmp_path / "config.pbtxt").write_text("# Ours.\n# Two lines.\nname: 'x' # not kept\n")
    pin(config, PAIR, 7)
    write_config(tmp_path, config)
    text = (tmp_path / "config.pbtxt").read_text()
    assert text.startswith("# Ours.\n# Two lines.\nname:")
    again = read_config(tmp_path)
    assert pinned_version(again, PAIR) == 7
    assert served_versions(again, [1, 7]) == [7]
    assert pinned_version(again, ["relay"]) == 1  # has no versions of its own
    assert again.name == "chat"


def test_pins_that_differ_are_no_version() -> None:
    config = read_config(project_repository() / "chat")
    pin(config, ["generate"], 2)
    assert pinned_version(config, PAIR) is None


def test_a_file_that_would_be_the_same_is_not_touched(tmp_path: Path) -> None:
    config = read_config(project_repository() / "generate")
    serve_versions(config, [1])
    write_config(tmp_path, config)
    before = (tmp_path / "config.pbtxt").stat().st_mtime_ns
    write_config(tmp_path, config)
    assert (tmp_path / "config.pbtxt").stat().st_mtime_ns == before


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.pbtxt").write_text("name: [")
    with pytest.raises(RolloutError, match=r"config\.pbtxt: cannot be read"):
        read_config(tmp_path)
