"""Add, promote, roll back, drain, delete: the steps of each, in an order that leaves a whole state at every one.

A command that was cut short is begun anew by the next one, but for an ``add``: that may be of no use, and is undone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from heptagram_backend.errors import HeptagramError, RolloutError
from heptagram_backend.rollout.files import ENSEMBLES, PAIR, RolloutFiles, pinned_ensembles
from heptagram_backend.rollout.journal import FLIPS, Entry, Journal
from heptagram_backend.rollout.steps import Step, run_all
from heptagram_backend.server.repository import Overrides

Report = Callable[[str], object]


class Control(Protocol):
    """See :class:`heptagram_backend.server.control.ModelControl`."""

    def load(self, model: str) -> None: ...

    def unload(self, model: str) -> None: ...


class Rollout:
    """Commands on one repository and the server that serves it. The caller holds the repository's lock.

    Args:
        check: raises :class:`RolloutError` where a version must not answer; run before it is promoted.
        fits: the same where the memory for a version is not there; run before it is loaded.
        dry: say the steps, do none.
    """

    def __init__(
        self,
        files: RolloutFiles,
        control: Control,
        *,
        check: Callable[[int], object],
        fits: Callable[[int], object],
        report: Report,
        dry: bool = False,
    ) -> None:
        self._files = files
        self._control = control
        self._check = check
        self._fits = fits
        self._report = report
        self._dry = dry

    def add(self, overrides: Overrides, *, base: int | None = None) -> int:
        """Write and load a new version, made of ``base`` (the current one) with ``overrides``; returns its number.

        Nobody but who asks for it by number is answered by it. The newest version is taken where it is that already.

        Raises:
            RolloutError: Triton refuses it, or it does not fit; nothing of it is left, what served goes on.
        """
        base = base or self._current()
        self._known(base)
        root, files = self._files.root, self._files
        pending = Journal.read(root).pending
        again = pending is not None and pending.command == "add" and files.is_made_of(pending.version, overrides, base)
        if pending is not None and not again:
            self.recover()
        newest = files.versions()[-1]
        if not again and newest != base and self._is_ready(newest) and files.is_made_of(newest, overrides, base):
            self._report(f"version {newest} is this already")
            return newest
        version = pending.version if pending is not None and again else newest + 1
        write = Step(f"write version {version}", lambda: files.write(version, overrides, base))
        try:
            self._do("add", version, [write, *self._load_steps(version)])
        except HeptagramError as error:
            run_all(self._undo_steps(version), self._report)
            Journal.read(root).forget(root)
            raise RolloutError(f"version {version} was refused, and nothing of it is left: {error}") from error
        return version

    def promote(self, version: int, *, command: str = "promote") -> None:
        """Make ``version`` the one that ``chat`` and ``completions`` answer with, once it has passed its check.

        Running requests stay with the version that they began on.
        """
        self.recover()
        self._known(version)
        if self._files.current() == version and version in self._files.served():
            self._report(f"version {version} is current already")
            return
        if not self._is_ready(version):
            self._do("load", version, self._load_steps(version))
        self._report(f"check version {version}")
        if not self._dry:
            self._check(version)
        self._do(command, version, self._flip_steps(version))

    def rollback(self, version: int | None = None) -> int:
        """Undo the last promotion, or go to ``version``; returns the current version.

        Raises:
            RolloutError: there was no promotion.
        """
        self.recover()
        journal = Journal.read(self._files.root)
        last = journal.last_flip
        if version is None and last is not None and last.command == "rollback":
            self._report(f"version {last.version} was rolled back to already; --to goes further")
            return last.version
        target = version or journal.rollback_target
        if target is None:
            raise RolloutError("nothing was promoted, so there is nothing to roll back; name a version with --to")
        self.promote(target, command="rollback")
        return target

    def drain(self, version: int) -> None:
        """Unload ``version``: its requests run to their end, new ones for it are refused, then its memory is free."""
        self.recover()
        self._known(version)
        if version == self._files.current():
            raise RolloutError(f"version {version} is current; promote another one or roll back first")
        self._do("drain", version, self._drain_steps(version))

    def delete(self, version: int) -> None:
        """Delete the files of a version that was drained."""
        self.recover()
        if version in self._files.served():
            raise RolloutError(f"version {version} is served; drain it first")
        self._do("delete", version, self._delete_steps(version))

    def deletable(self) -> list[int]:
        """Versions that are not served, but for the one that a rollback goes to."""
        kept = {*self._files.served(), Journal.read(self._files.root).rollback_target}
        return [version for version in self._files.versions() if version not in kept]

    def recover(self) -> None:
        """End what an earlier command began: an ``add`` is undone, anything else is done again."""
        pending = Journal.read(self._files.root).pending
        if pending is None:
            return
        self._report(f"first: {explain(pending)}")
        if self._dry:
            return
        run_all(self._steps_after(pending), self._report)
        journal = Journal.read(self._files.root)
        (journal.forget if pending.command == "add" else journal.end)(self._files.root)

    def _steps_after(self, pending: Entry) -> list[Step]:
        version = pending.version
        if pending.command in FLIPS:
            return self._flip_steps(version)  # it passed its check before anything was flipped
        match pending.command:
            case "load":
                return self._load_steps(version)
            case "drain":
                return self._drain_steps(version)
            case "delete":
                return self._delete_steps(version)
            case _:
                return self._undo_steps(version)

    def _is_ready(self, version: int) -> bool:
        return version in self._files.served() and self._files.has_pinned(version)

    def _load_steps(self, version: int) -> list[Step]:
        fits = Step(f"see whether version {version} fits beside the others", lambda: self._fits(version))
        return [
            *([] if version in self._files.served() else [fits]),
            Step(f"have version {version} served", lambda: self._files.serve(version, wanted=True)),
            *(self._load(model) for model in PAIR),
            Step(f"pin ensembles to version {version}", lambda: self._files.pin_beside(version)),
            *(self._load(ensemble) for ensemble in pinned_ensembles(version)),
        ]

    def _flip_steps(self, version: int) -> list[Step]:
        def flip(ensemble: str) -> list[Step]:
            pin = Step(f"pin {ensemble} to version {version}", lambda: self._files.pin(ensemble, version))
            return [pin, self._load(ensemble)]

        return [step for ensemble in ENSEMBLES for step in flip(ensemble)]

    def _drain_steps(self, version: int) -> list[Step]:
        return [
            *(self._unload(ensemble) for ensemble in pinned_ensembles(version)),
            Step(f"remove the ensembles pinned to version {version}", lambda: self._files.remove_pinned(version)),
            Step(f"have version {version} served no more", lambda: self._files.serve(version, wanted=False)),
            *(self._load(model) for model in PAIR),
        ]

    def _undo_steps(self, version: int) -> list[Step]:
        return [*self._drain_steps(version), *self._delete_steps(version)]

    def _delete_steps(self, version: int) -> list[Step]:
        return [Step(f"delete version {version}", lambda: self._files.remove(version))]

    def _load(self, model: str) -> Step:
        return Step(f"load {model}", lambda: self._control.load(model))

    def _unload(self, model: str) -> Step:
        def unload() -> None:
            if (self._files.root / model).exists():  # Triton refuses what it has never heard of
                self._control.unload(model)

        return Step(f"unload {model}", unload)

    def _do(self, command: str, version: int, steps: list[Step]) -> None:
        if self._dry:
            run_all([Step(step.text, lambda: None) for step in steps], self._report)
            return
        root = self._files.root
        Journal.read(root).begin(root, command, version, self._files.current())
        run_all(steps, self._report)
        Journal.read(root).end(root)

    def _known(self, version: int) -> None:
        if version not in self._files.versions():
            raise RolloutError(f"there is no version {version}; there are {_listed(self._files.versions())}")

    def _current(self) -> int:
        current = self._files.current()
        if current is None:
            raise RolloutError("chat and completions are pinned to different versions; promote one")
        return current


def explain(pending: Entry) -> str:
    """What was cut short, and what becomes of it."""
    outcome = "undone" if pending.command == "add" else "ended"
    return f"`{pending.command}` of version {pending.version} was cut short; the next command has it {outcome}"


def _listed(versions: list[int]) -> str:
    return ", ".join(map(str, versions)) or "none"
