"""The drain of an ordered stop, without a server; tests/server/test_stop.py has the real one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from heptagram_backend.server.control import ControlError
from heptagram_backend.server.drain import drain

BOUND_S = 30.0


@dataclass
class Server:
    """Of its ensembles each ends as many seconds behind its unload as ``runs`` says."""

    runs: dict[str, float]
    now: float = 0.0
    unloaded: dict[str, float] = field(default_factory=dict)
    answers: Callable[[float], bool] = lambda now: True

    def states(self) -> dict[tuple[str, str], str]:
        if not self.answers(self.now):
            raise ControlError("gone")
        return {(name, "1"): self._state(name) for name in self.runs} | {("away", "1"): "UNAVAILABLE"}

    def _state(self, name: str) -> str:
        if name not in self.unloaded:
            return "READY"
        return "UNLOADING" if self.now < self.unloaded[name] + self.runs[name] else "UNAVAILABLE"

    def unload(self, name: str) -> None:
        self.unloaded[name] = self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def drained(self, repository: Path) -> float:
        return drain(self, repository, timeout_s=BOUND_S, clock=lambda: self.now, sleep=self.sleep)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, platform in {
        "chat": "ensemble",
        "completions": "ensemble",
        "away": "ensemble",
        "relay": "python",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").write_text(f'name: "{name}"\nplatform: "{platform}"\n')
    return tmp_path


def test_ensembles_are_unloaded_and_awaited(repository: Path) -> None:
    server = Server({"chat": 8.0, "completions": 3.0, "relay": 100.0})
    assert server.drained(repository) == pytest.approx(BOUND_S - 8, abs=0.2)
    assert server.unloaded == {"chat": 0.0, "completions": 0.0}


def test_the_bound(repository: Path) -> None:
    server = Server({"chat": 31.0})
    assert server.drained(repository) == 0
    assert server.now == pytest.approx(BOUND_S, abs=0.2)


def test_who_does_not_answer_is_not_waited_for(repository: Path) -> None:
    assert Server({"chat": 100.0}, answers=lambda now: False).drained(repository) == BOUND_S
    dies = Server({"chat": 100.0}, answers=lambda now: now < 5)
    assert dies.drained(repository) == pytest.approx(BOUND_S - 5, abs=0.2)


def test_no_ensembles(tmp_path: Path) -> None:
    server = Server({"echo": 100.0})
    assert server.drained(tmp_path) == BOUND_S
    assert not server.unloaded
