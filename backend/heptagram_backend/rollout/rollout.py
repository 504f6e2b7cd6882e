"""Add, shift, promote, roll back, drain, delete: the steps of each, in an order that leaves a whole state at every one.

A command that was cut short is begun anew by the next one, but for an ``add``: that may be of no use, and is undone.
"""

from __future__ import annotations

from collections.abc import Callable

from heptagram_backend.errors import HeptagramError, RolloutError
from heptagram_backend.release import Release
from heptagram_backend.rollout.files import RolloutFiles
from heptagram_backend.rollout.journal import FLIPS, Entry, Journal
from heptagram_backend.rollout.plans import Control, Plans
from heptagram_backend.rollout.steps import Step, run_all
from heptagram_backend.server.repository import Overrides
from heptagram_wire.traffic import WHOLE

Report = Callable[[str], object]


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
        self._plans = Plans(files, control, fits)
        self._check = check
        self._report = report
        self._dry = dry

    def add(self, overrides: Overrides, *, base: int | None = None) -> int:
        """Write and load a new version, made of ``base`` (the current one) with ``overrides``; returns its number.

        Nobody but who asks for it by number is answered by it. The newest version is taken where it is that already.

        Raises:
            RolloutError: Triton refuses it, or it does not fit; nothing of it is left, what served goes on.
        """
        self.recover(but="add")  # that one may be of use
        base = base or self.current()
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
            self._do("add", version, [write, *self._plans.load(version)])
        except HeptagramError as error:
            run_all(self._plans.undo(version), self._report)
            Journal.read(root).forget(root)
            raise RolloutError(f"version {version} was refused, and nothing of it is left: {error}") from error
        return version

    def release(self, version: int) -> Release:
        """Raises RolloutError where there is no such version."""
        self._known(version)
        return self._files.release(version)

    def promote(self, version: int, *, command: str = "promote") -> None:
        """Make ``version`` the one that ``chat`` and ``completions`` answer with, once it has passed its check.

        Running requests stay with the version that they began on.
        """
        self.recover()
        self._known(version)
        if self._files.current() == version and version in self._files.served() and not self._files.shares():
            self._report(f"version {version} is current already")
            return
        self._try(version)
        self._do(command, version, self._plans.flip(version))

    def shift(self, version: int, weight: int) -> None:
        """Give ``version`` so many percent of the conversations that come to the front, once it has passed its check.

        The current version has what the others leave. A running conversation is moved only where its version has less
        than before. Whoever asks Triton itself for ``chat`` is answered by the current version as before.

        Raises:
            RolloutError: ``version`` is the current one, or there is not so much to give.
        """
        self.recover()
        self._known(version)
        before, after = self._files.shares(), self._shared(version, weight)
        if after == before:
            self._report(f"version {version} has {weight} % already")
            return
        if weight and not before.get(version):
            self._try(version)
        self._do("shift", version, self._plans.share(after), weight=weight)

    def shares(self) -> dict[int, int]:
        """Percents by version, the current one among them."""
        return self._files.shares() or {self.current(): WHOLE}

    def _shared(self, version: int, weight: int) -> dict[int, int]:
        """What is shared among whom once ``version`` has ``weight`` percent; empty where the current one has all."""
        current = self.current()
        if version == current:
            raise RolloutError(f"version {version} is current and has what the others leave; shift one of those")
        others = {
            each: share for each, share in self._files.shares().items() if each not in (current, version) and share
        }
        left = WHOLE - sum(others.values())
        if not 0 <= weight <= left:
            raise RolloutError(f"version {version} can have 0 to {left} %, not {weight}")
        given = {**others, **({version: weight} if weight else {})}
        return {**given, current: left - weight} if given else {}

    def _try(self, version: int) -> None:
        """Have a version loaded and checked."""
        if not self._is_ready(version):
            self._do("load", version, self._plans.load(version))
        self._report(f"check version {version}")
        if not self._dry:
            self._check(version)

    def rollback(self, version: int | None = None) -> int:
        """Undo the last promotion, or go to ``version``; returns the current version.

        Where a shift has begun, it is that which is undone: the current version has everything again.

        Raises:
            RolloutError: there was no promotion.
        """
        self.recover()
        journal = Journal.read(self._files.root)
        if version is None and self._files.shares():
            current = self.current()
            self._do("rollback", current, self._plans.flip(current))
            return current
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
        if share := self._files.shares().get(version):
            raise RolloutError(f"version {version} has {share} % of the requests; shift it to 0 first")
        self._do("drain", version, self._plans.drain(version))

    def delete(self, version: int) -> None:
        """Delete the files of a version that was drained."""
        self.recover()
        if version in self._files.served():
            raise RolloutError(f"version {version} is served; drain it first")
        self._do("delete", version, self._plans.delete(version))

    def deletable(self) -> list[int]:
        """Versions that are not served, but for the one that a rollback goes to."""
        kept = {*self._files.served(), Journal.read(self._files.root).rollback_target}
        return [version for version in self._files.versions() if version not in kept]

    def recover(self, *, but: str | None = None) -> None:
        """End what an earlier command began: an ``add`` is undone, anything else is done again; ``but`` is left."""
        pending = Journal.read(self._files.root).pending
        if pending is None or pending.command == but:
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
            return self._plans.flip(version)  # it passed its check before anything was flipped
        match pending.command:
            case "load":
                return self._plans.load(version)
            case "shift":
                return self._plans.share(self._shared(version, pending.weight or 0))
            case "drain":
                return self._plans.drain(version)
            case "delete":
                return self._plans.delete(version)
            case _:
                return self._plans.undo(version)

    def _is_ready(self, version: int) -> bool:
        return version in self._files.served() and self._files.has_pinned(version)

    def _do(self, command: str, version: int, steps: list[Step], *, weight: int | None = None) -> None:
        if self._dry:
            run_all([Step(step.text, lambda: None) for step in steps], self._report)
            return
        root = self._files.root
        Journal.read(root).begin(root, command, version, self._files.current(), weight=weight)
        run_all(steps, self._report)
        Journal.read(root).end(root)

    def _known(self, version: int) -> None:
        if version not in self._files.versions():
            raise RolloutError(f"there is no version {version}; there are {_listed(self._files.versions())}")

    def current(self) -> int:
        """The version that ``chat`` and ``completions`` answer with.

        Raises:
            RolloutError: they answer with different ones.
        """
        current = self._files.current()
        if current is None:
            raise RolloutError("chat and completions are pinned to different versions; promote one")
        return current


def explain(pending: Entry) -> str:
    """What was cut short, and what becomes of it."""
    outcome = "undone" if pending.command == "add" else "ended"
    aim = "" if pending.weight is None else f" to {pending.weight} %"
    return f"`{pending.command}` of version {pending.version}{aim} was cut short; the next command has it {outcome}"


def _listed(versions: list[int]) -> str:
    return ", ".join(map(str, versions)) or "none"
