"""The commands on files, with a control that only remembers what was loaded: what a cut leaves, and what mends it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from heptagram_backend.errors import ReleaseError, RolloutError
from heptagram_backend.rollout.configs import pinned_version, read_config
from heptagram_backend.rollout.files import PAIR, RolloutFiles, pinned_ensembles
from heptagram_backend.rollout.journal import Journal
from heptagram_backend.rollout.rollout import Rollout
from heptagram_backend.rollout.status import status_of
from heptagram_backend.server.control import ControlError
from heptagram_backend.server.repository import Overrides, project_repository

NEW = Overrides({"served_model_name": "new"})
OTHER = Overrides({"served_model_name": "other"})


class Cut(BaseException):
    """The process was killed here."""


class MemoryControl:
    """Loads what the files say, as Triton does; ``refused`` is a version that it cannot load."""

    def __init__(self, files: RolloutFiles, refused: int | None = None) -> None:
        self.files = files
        self.refused = refused
        self.loaded: dict[str, list[int | None]] = {}

    def load(self, model: str) -> None:
        if model in PAIR:
            if self.refused in self.files.served():
                raise ControlError(f"version {self.refused}: no such checkpoint")
            self.loaded[model] = list(self.files.served())
        else:
            self.loaded[model] = [pinned_version(read_config(self.files.root / model), PAIR)]

    def unload(self, model: str) -> None:
        self.loaded.pop(model, None)


class Bench:
    """A repository with version 1, and commands on it that may be cut before their n-th step."""

    def __init__(self, root: Path, refused: int | None = None) -> None:
        shutil.copytree(project_repository(), root, ignore=shutil.ignore_patterns("__pycache__"))
        self.files = RolloutFiles(root)
        self.control = MemoryControl(self.files, refused)
        self.checked: list[int] = []
        self.told: list[str] = []

    def rollout(self, cut_before: int | None = None, *, dry: bool = False) -> Rollout:
        self.told = []

        def report(text: str) -> None:
            self.told.append(text)
            if len(self.told) == cut_before:
                raise Cut

        return Rollout(
            self.files, self.control, check=self.checked.append, fits=lambda version: None, report=report, dry=dry
        )

    def states(self) -> tuple[list[int], list[int], int | None]:
        return self.files.versions(), self.files.served(), self.files.current()

    @property
    def pending(self) -> str | None:
        return status_of(self.files, None, None).pending


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "repository")


def cuts(bench: Bench, command: Callable[[Rollout], object], before: Callable[[], object]) -> list[int]:
    """Cut ``command`` before each of its steps in turn; ``before`` mends. Ends when it ran whole."""
    done = []
    for step in range(1, 40):
        try:
            command(bench.rollout(step))
        except Cut:
            done.append(step)
            before()
            continue
        return done
    raise AssertionError("it never ends")


def test_a_version_goes_its_way(bench: Bench) -> None:
    assert bench.rollout().add(NEW) == 2
    assert bench.states() == ([1, 2], [1, 2], 1)
    assert bench.files.release(2).served_model_name == "new"
    assert bench.checked == []
    bench.rollout().promote(2)
    assert bench.checked == [2]
    assert bench.states() == ([1, 2], [1, 2], 2)
    assert bench.control.loaded["chat"] == bench.control.loaded["completions"] == [2]
    bench.rollout().drain(1)
    assert bench.states() == ([1, 2], [2], 2)
    assert bench.rollout().deletable() == []  # a rollback goes there
    assert bench.rollout().rollback() == 1
    assert bench.states() == ([1, 2], [1, 2], 1)
    bench.rollout().drain(2)
    assert not any((bench.files.root / name).exists() for name in pinned_ensembles(2))
    assert bench.rollout().deletable() == [2]
    bench.rollout().delete(2)
    assert bench.states() == ([1], [1], 1)
    assert bench.pending is None


def test_every_command_can_be_repeated(bench: Bench) -> None:
    assert [bench.rollout().add(NEW), bench.rollout().add(NEW)] == [2, 2]
    assert bench.rollout().add(OTHER) == 3
    for _ in range(2):
        bench.rollout().promote(2)
    assert [bench.rollout().rollback(), bench.rollout().rollback()] == [1, 1]
    for _ in range(2):
        bench.rollout().drain(3)
    for _ in range(2):
        bench.rollout().delete(3)
    assert bench.states() == ([1, 2], [1, 2], 1)


def test_an_add_that_is_cut_anywhere_is_undone_by_another_command(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "repository")

    def mend() -> None:
        assert bench.pending is None or "`add` of version 2 was cut short" in bench.pending
        with pytest.raises(RolloutError, match="no version 7"):
            bench.rollout().promote(7)
        assert bench.states() == ([1], [1], 1)
        assert bench.pending is None
        assert sorted(path.name for path in bench.files.root.iterdir() if path.is_dir()) == sorted(
            path.name for path in project_repository().iterdir() if path.is_dir()
        )

    assert len(cuts(bench, lambda rollout: rollout.add(NEW), mend)) > 5
    assert bench.states() == ([1, 2], [1, 2], 1)


def test_an_add_that_is_cut_anywhere_goes_on_when_it_is_repeated(bench: Bench) -> None:
    for step in range(1, 8):
        with pytest.raises(Cut):
            bench.rollout(step).add(NEW)
    assert bench.rollout().add(NEW) == 2
    assert bench.states() == ([1, 2], [1, 2], 1)
    assert bench.pending is None


def test_an_add_that_is_cut_gives_way_to_another_one(bench: Bench) -> None:
    with pytest.raises(Cut):
        bench.rollout(4).add(NEW)
    assert bench.rollout().add(OTHER) == 2
    assert bench.files.release(2).served_model_name == "other"


def test_a_promotion_that_is_cut_is_whole_after_the_next_command(bench: Bench) -> None:
    bench.rollout().add(NEW)
    bench.rollout().promote(1)
    for step in range(1, 40):
        try:
            bench.rollout(step).promote(2)
        except Cut:
            began = bench.pending
            assert bench.files.current() in (1, None, 2)
            bench.rollout().rollback(1)
            assert bench.pending is None
            assert bench.states()[2] == 1
            assert bench.told[0].startswith("first:") == (began is not None)
            continue
        break
    assert step > 4
    assert bench.states()[2] == 2
    assert bench.control.loaded["chat"] == bench.control.loaded["completions"] == [2]


@pytest.mark.parametrize("step", [1, 3, 5])
def test_a_drain_that_is_cut_is_whole_after_the_next_command(bench: Bench, step: int) -> None:
    bench.rollout().add(NEW)
    with pytest.raises(Cut):
        bench.rollout(step).drain(2)
    assert "drain" in (bench.pending or "")
    bench.rollout().recover()
    assert bench.states() == ([1, 2], [1], 1)
    assert bench.pending is None


def test_a_version_that_triton_refuses_leaves_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "repository", refused=2)
    with pytest.raises(RolloutError, match=r"version 2 was refused, and nothing of it is left: .*no such checkpoint"):
        bench.rollout().add(NEW)
    assert bench.states() == ([1], [1], 1)
    assert bench.pending is None


@pytest.mark.parametrize("error", [RolloutError("it needs 9 GiB"), ReleaseError("no such folder")])
def test_a_version_that_does_not_fit_leaves_nothing(bench: Bench, error: Exception) -> None:
    def refuse(version: int) -> None:
        raise error

    rollout = Rollout(bench.files, bench.control, check=refuse, fits=refuse, report=lambda text: None)
    with pytest.raises(RolloutError, match=str(error)):
        rollout.add(NEW)
    assert bench.states() == ([1], [1], 1)
    assert bench.pending is None


def test_what_must_not_be_is_refused(bench: Bench) -> None:
    with pytest.raises(RolloutError, match="nothing was promoted"):
        bench.rollout().rollback()
    with pytest.raises(RolloutError, match="version 1 is current"):
        bench.rollout().drain(1)
    with pytest.raises(RolloutError, match="version 1 is served"):
        bench.rollout().delete(1)
    with pytest.raises(RolloutError, match="no version 5; there are 1"):
        bench.rollout().add(NEW, base=5)


def test_a_version_that_fails_its_check_is_not_promoted(bench: Bench) -> None:
    bench.rollout().add(NEW)

    def fail(version: int) -> None:
        raise RolloutError("its arguments are invalid")

    strict = Rollout(bench.files, bench.control, check=fail, fits=fail, report=lambda text: None)
    with pytest.raises(RolloutError, match="invalid"):
        strict.promote(2)
    assert bench.states()[2] == 1
    assert bench.pending is None


def test_a_dry_run_says_the_steps_and_does_none(bench: Bench) -> None:
    bench.rollout(dry=True).add(NEW)
    assert "load generate" in bench.told
    assert bench.states() == ([1], [1], 1)
    assert bench.control.loaded == {}
    assert Journal.read(bench.files.root) == Journal()
