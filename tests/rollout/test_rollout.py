"""The commands on files, with a control that only remembers what was loaded: what a cut leaves, and what mends it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from heptagram_backend.errors import ReleaseError, RolloutError
from heptagram_backend.recorded import installed_versions
from heptagram_backend.release import Release
from heptagram_backend.rollout.configs import pinned_version, read_config, shares
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


def three(bench: Bench) -> None:
    assert [bench.rollout().add(NEW), bench.rollout().add(OTHER)] == [2, 3]


def test_a_version_gets_a_part_of_the_requests(bench: Bench) -> None:
    three(bench)
    assert bench.rollout().shares() == {1: 100}
    bench.rollout().shift(2, 25)
    assert bench.checked == [2]
    assert bench.rollout().shares() == {1: 75, 2: 25}
    assert bench.files.current() == 1
    bench.rollout().shift(3, 10)
    bench.rollout().shift(2, 50)
    assert bench.checked == [2, 3]  # it has proved itself
    assert bench.rollout().shares() == {1: 40, 2: 50, 3: 10}
    for ensemble in ("chat", "completions"):
        assert shares(read_config(bench.files.root / ensemble)) == {1: 40, 2: 50, 3: 10}
    assert [version.weight for version in status_of(bench.files, None, None).versions] == [40, 50, 10]
    bench.rollout().shift(2, 0)
    bench.rollout().shift(3, 100)
    assert bench.rollout().shares() == {1: 0, 3: 100}
    bench.rollout().promote(3)
    assert bench.rollout().shares() == {3: 100}
    assert bench.files.shares() == {}
    bench.rollout().shift(1, 0)
    assert bench.files.shares() == {}


def test_a_shift_can_be_repeated_and_is_undone_by_a_rollback(bench: Bench) -> None:
    three(bench)
    bench.rollout().promote(2)
    for _ in range(2):
        bench.rollout().shift(3, 25)
    assert bench.rollout().shares() == {2: 75, 3: 25}
    for _ in range(2):  # a rollback that is sent twice goes back once
        assert bench.rollout().rollback() == 2
    assert bench.rollout().shares() == {2: 100}
    assert bench.rollout().rollback(1) == 1


def test_a_promotion_of_the_current_version_ends_a_shift(bench: Bench) -> None:
    three(bench)
    bench.rollout().shift(2, 25)
    bench.rollout().promote(1)
    assert bench.files.shares() == {}


@pytest.mark.parametrize(
    ("version", "weight", "said"),
    [
        (1, 10, "version 1 is current and has what the others leave"),
        (3, 80, "version 3 can have 0 to 75 %, not 80"),
        (3, -1, "version 3 can have 0 to 75 %, not -1"),
        (2, 101, "version 2 can have 0 to 100 %, not 101"),
        (9, 10, "there is no version 9"),
    ],
)
def test_a_shift_that_cannot_be_is_refused(bench: Bench, version: int, weight: int, said: str) -> None:
    three(bench)
    bench.rollout().shift(2, 25)
    with pytest.raises(RolloutError, match=said):
        bench.rollout().shift(version, weight)
    assert bench.rollout().shares() == {1: 75, 2: 25}
    assert bench.pending is None


def test_a_version_that_has_a_part_is_not_drained(bench: Bench) -> None:
    three(bench)
    bench.rollout().shift(2, 25)
    with pytest.raises(RolloutError, match="version 2 has 25 % of the requests; shift it to 0 first"):
        bench.rollout().drain(2)
    bench.rollout().shift(2, 0)
    bench.rollout().drain(2)
    bench.rollout().shift(2, 5)  # it is loaded for it
    assert bench.states() == ([1, 2, 3], [1, 2, 3], 1)
    assert bench.rollout().shares() == {1: 95, 2: 5}


def test_a_version_that_fails_its_check_gets_no_part(bench: Bench) -> None:
    bench.rollout().add(NEW)

    def fail(version: int) -> None:
        raise RolloutError("its arguments are invalid")

    strict = Rollout(bench.files, bench.control, check=fail, fits=fail, report=lambda text: None)
    with pytest.raises(RolloutError, match="invalid"):
        strict.shift(2, 25)
    assert bench.files.shares() == {}


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_shift_that_is_cut_anywhere_is_whole_after_the_next_command(bench: Bench, goes_on: bool) -> None:
    bench.rollout().add(NEW)
    done = cuts(bench, lambda rollout: rollout.shift(2, 25), lambda: mend_shift(bench, goes_on=goes_on))
    assert len(done) >= 4
    assert bench.rollout().shares() == {1: 75, 2: 25}
    assert bench.pending is None


def mend_shift(bench: Bench, *, goes_on: bool) -> None:
    began = bench.pending
    assert began is None or "`shift` of version 2 to 25 % was cut short; the next command has it ended" in began
    bench.rollout().shift(2, 25 if goes_on else 0)
    assert bench.pending is None
    for ensemble in ("chat", "completions"):
        assert shares(read_config(bench.files.root / ensemble)) == ({1: 75, 2: 25} if goes_on else {})
    bench.rollout().shift(2, 0)


@pytest.mark.parametrize("next_command", ["add", "shift", "drain"])
@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_a_promotion_that_is_cut_is_ended_by_any_command(bench: Bench, step: int, next_command: str) -> None:
    three(bench)
    began = len(bench.told)
    with pytest.raises(Cut):
        bench.rollout(began and step + 1).promote(2)
    assert "`promote` of version 2" in (bench.pending or "")
    rollout = bench.rollout()
    match next_command:
        case "add":
            assert rollout.add(Overrides({"served_model_name": "fourth"})) == 4
        case "shift":
            rollout.shift(3, 10)
        case _:
            rollout.drain(3)
    assert bench.files.current() == 2
    assert bench.control.loaded["chat"] == bench.control.loaded["completions"] == [2]
    assert bench.pending is None


@pytest.mark.parametrize("command", ["delete", "load"])
def test_a_deletion_and_a_load_that_are_cut_are_whole_after_the_next_command(bench: Bench, command: str) -> None:
    bench.rollout().add(NEW)
    bench.rollout().drain(2)

    def run(rollout: Rollout) -> None:
        if command == "delete":
            rollout.delete(2)
        else:
            rollout.promote(2)

    with pytest.raises(Cut):
        run(bench.rollout(1 if command == "delete" else 3))
    assert f"`{command}` of version 2 was cut short" in (bench.pending or "")
    bench.rollout().recover()
    assert bench.pending is None
    assert bench.states() == (([1], [1], 1) if command == "delete" else ([1, 2], [1, 2], 1))


def test_every_dry_run_does_nothing(bench: Bench) -> None:
    three(bench)
    bench.rollout().shift(2, 25)
    before = snapshot(bench.files.root), dict(bench.control.loaded), list(bench.checked)
    commands: list[Callable[[Rollout], object]] = [
        lambda rollout: rollout.add(Overrides({"served_model_name": "fourth"})),
        lambda rollout: rollout.shift(3, 10),
        lambda rollout: rollout.promote(2),
        lambda rollout: rollout.rollback(),
        lambda rollout: rollout.drain(3),
    ]
    for run in commands:
        run(bench.rollout(dry=True))
        assert bench.told
    assert (snapshot(bench.files.root), dict(bench.control.loaded), list(bench.checked)) == before


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_a_new_version_records_what_it_was_written_for(bench: Bench) -> None:
    bench.rollout().add(NEW)
    release = bench.files.release(2)
    assert release.versions == installed_versions()
    assert release.created_at is not None
    assert release.k7_layout == bench.files.release(1).k7_layout


def test_a_new_version_is_written_for_the_installed_layout(bench: Bench) -> None:
    path = bench.files.root / "generate" / "1" / "release.yaml"
    layout = bench.files.release(1).k7_layout
    path.write_text(path.read_text().replace(layout[0], "an older line"))
    assert bench.files.release(1).k7_layout[0] == "an older line"
    bench.rollout().add(NEW)
    assert bench.files.release(2).k7_layout == layout
    assert not Release.load(bench.files.root / "preprocess" / "2").k7_layout
