"""The watchdog's decisions, step by step, without a server; tests/server/test_watchdog.py has the real one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil
import pytest

from heptagram_backend.errors import LaunchError
from heptagram_backend.server.control import ControlError
from heptagram_backend.server.stubs import Stub
from heptagram_backend.server.watchdog import Watchdog


@dataclass
class World:
    """A server whose stubs end when the test says so."""

    now: float = 0.0
    stubs: list[Stub] = field(default_factory=list)
    made: list[Stub] = field(default_factory=list)
    ready: bool = True
    loads_fail: bool = False
    calls: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def has(self, *stubs: Stub) -> None:
        self.stubs = list(stubs)
        self.made += [stub for stub in stubs if not stub.alive]

    def ended(self) -> list[Stub]:
        return [stub for stub in self.stubs if not stub.alive]

    def living(self, model: str, version: str) -> bool:
        return any(stub.alive for stub in self.stubs)

    def forget(self, stub: Stub) -> None:
        self.stubs.remove(stub)

    def search(self) -> None:
        self.calls.append("search")

    def ready_versions(self, model: str) -> set[str]:
        return {"1"} if self.ready else set()

    def unload(self, model: str) -> None:
        self.calls.append("unload")

    def load(self, model: str) -> None:
        self.calls.append("load")
        if self.loads_fail:
            raise ControlError("no")

    def dog(self) -> Watchdog:
        return Watchdog(self, self, report=self.said.append, clock=lambda: self.now)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    for stub in world.made:
        if stub.is_zombie:
            os.waitpid(stub.process.pid, 0)


def dead(*, zombie: bool) -> Stub:
    """A process that has ended, and was waited for or not."""
    pid = os.posix_spawn(sys.executable, [sys.executable, "-Sc", "import time; time.sleep(60)"], os.environ)
    process = psutil.Process(pid)
    process.kill()
    while process.status() != psutil.STATUS_ZOMBIE:
        pass
    if not zombie:
        os.waitpid(pid, 0)
    return Stub(process, "generate", "1")


def look_for_a_minute(world: World, dog: Watchdog) -> None:
    for world.now in range(60):
        dog.look()


def living() -> Stub:
    return Stub(psutil.Process(), "generate", "1")


@pytest.mark.parametrize("zombie", [True, False])
def test_a_dead_process_of_a_ready_model(world: World, zombie: bool) -> None:
    world.has(dead(zombie=zombie))
    dog = world.dog()
    dog.look()
    assert world.calls == []
    dog.look()
    assert world.calls == ["unload", "load", "search"]
    assert world.said[-1] == "generate is ready again, 0.0 s after its process was found dead"
    assert dog.deaths == 1
    dog.look()
    assert len(world.calls) == 3


def test_one_instance_of_several(world: World) -> None:
    world.has(living(), dead(zombie=True))
    dog = world.dog()
    dog.look()
    dog.look()
    assert world.calls == ["unload", "load", "search"]


def test_what_triton_ended_itself_is_no_death(world: World) -> None:
    world.has(dead(zombie=False), living())  # a version that was reloaded
    dog = world.dog()
    for _ in range(3):
        dog.look()
    world.ready = False
    world.has(dead(zombie=True))  # an unload that takes its time
    for _ in range(3):
        dog.look()
    assert (world.calls, dog.deaths) == ([], 0)


def test_pauses_grow_and_then_it_gives_up(world: World) -> None:
    dog = world.dog()
    for pause in (0.0, 1.0, 4.0, 16.0):
        world.calls.clear()
        world.has(dead(zombie=True))
        dog.look()
        dog.look()
        assert world.calls[0] == "unload"
        if pause:
            assert world.calls == ["unload"]
            world.now += pause
            dog.look()
        assert world.calls == ["unload", "load", "search"]
    world.has(dead(zombie=True))
    dog.look()
    with pytest.raises(LaunchError, match="generate failed 5 times within 10 minutes and is given up"):
        dog.look()


def test_a_load_that_fails_counts_too(world: World) -> None:
    world.loads_fail = True
    world.has(dead(zombie=True))
    dog = world.dog()
    with pytest.raises(LaunchError, match="given up"):
        look_for_a_minute(world, dog)
    assert world.calls == ["unload", *["load"] * 4]
    assert "generate cannot be loaded: no" in world.said


def test_deaths_long_ago_are_forgotten(world: World) -> None:
    dog = world.dog()
    for _ in range(8):
        world.now += 300
        world.has(dead(zombie=True))
        for _ in range(3):
            dog.look()
            world.now += 1
    assert world.calls.count("load") == 8
