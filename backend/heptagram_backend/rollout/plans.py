"""The steps of each command, in an order that leaves a whole state at every one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from heptagram_backend.rollout.files import ENSEMBLES, PAIR, RolloutFiles, pinned_ensembles
from heptagram_backend.rollout.steps import Step
from heptagram_wire.traffic import traffic_text


class Control(Protocol):
    """See :class:`heptagram_backend.server.control.ModelControl`."""

    def load(self, model: str) -> None: ...

    def unload(self, model: str) -> None: ...


class Plans:
    """Lists of steps on one repository and the server that serves it."""

    def __init__(self, files: RolloutFiles, control: Control, fits: Callable[[int], object]) -> None:
        self._files = files
        self._control = control
        self._fits = fits

    def load(self, version: int) -> list[Step]:
        fits = Step(f"see whether version {version} fits beside the others", lambda: self._fits(version))
        return [
            *([] if version in self._files.served() else [fits]),
            Step(f"have version {version} served", lambda: self._files.serve(version, wanted=True)),
            *(self._load(model) for model in PAIR),
            *self._beside(version),
        ]

    def flip(self, version: int) -> list[Step]:
        def flip(ensemble: str) -> list[Step]:
            pin = Step(f"pin {ensemble} to version {version}", lambda: self._files.pin(ensemble, version))
            return [pin, self._load(ensemble)]

        return [step for ensemble in ENSEMBLES for step in flip(ensemble)]

    def share(self, weights: Mapping[int, int]) -> list[Step]:
        told = traffic_text(weights) if weights else "none"

        def share(ensemble: str) -> list[Step]:
            write = Step(f"write the shares of {ensemble}: {told}", lambda: self._files.share(ensemble, weights))
            return [write, self._load(ensemble)]

        alone = [version for version in weights if not self._files.has_pinned(version)]
        beside = [step for version in alone for step in self._beside(version)]
        return [*beside, *(step for ensemble in ENSEMBLES for step in share(ensemble))]

    def drain(self, version: int) -> list[Step]:
        return [
            *(self._unload(ensemble) for ensemble in pinned_ensembles(version)),
            Step(f"remove the ensembles pinned to version {version}", lambda: self._files.remove_pinned(version)),
            Step(f"have version {version} served no more", lambda: self._files.serve(version, wanted=False)),
            *(self._load(model) for model in PAIR),
        ]

    def undo(self, version: int) -> list[Step]:
        return [*self.drain(version), *self.delete(version)]

    def delete(self, version: int) -> list[Step]:
        return [Step(f"delete version {version}", lambda: self._files.remove(version))]

    def _beside(self, version: int) -> list[Step]:
        return [
            Step(f"pin ensembles to version {version}", lambda: self._files.pin_beside(version)),
            *(self._load(ensemble) for ensemble in pinned_ensembles(version)),
        ]

    def _load(self, model: str) -> Step:
        return Step(f"load {model}", lambda: self._control.load(model))

    def _unload(self, model: str) -> Step:
        def unload() -> None:
            if (self._files.root / model).exists():  # Triton refuses what it has never heard of
                self._control.unload(model)

        return Step(f"unload {model}", unload)
