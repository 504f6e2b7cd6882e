"""The watchdog's decisions, step by step, without a server; tests/server/test_watchdog.py has the real one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

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
        """These and no others."""
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

    def dog(self, pool: Executor | None = None) -> Watchdog:
        return Watchdog(self, self, report=self.said.append, pool=pool or AtOnce(), clock=lambda: self.now)


class AtOnce(Executor):
    """Runs a load where it is submitted."""

    def submit(self, load: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(load(*arguments, **named))
        except ControlError as error:
            future.set_exception(error)
        return future


class Later(Executor):
    """Never runs it; the test says when a load is over."""

    def __init__(self) -> None:
        self.loads: list[Future[Any]] = []

    def submit(self, load: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        self.loads.append(Future())
        return self.loads[-1]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    for stub in world.made:
        if stub.is_zombie:
            os.waitpid(stub.process.pid, 0)


def dead(*, zombie: bool, model: str = "generate") -> Stub:
    """A process that has ended, and was waited for or not."""
    pid = os.posix_spawn(sys.executable, [sys.executable, "-Sc", "import time; time.sleep(60)"], os.environ)
    process = psutil.Process(pid)
    process.kill()
    while process.status() != psutil.STATUS_ZOMBIE:
        pass
    if not zombie:
        os.waitpid(pid, 0)
    return Stub(process, model, "1" if model else "")


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


def look(world: World, dog: Watchdog, seconds: float) -> None:
    """Four times a second."""
    for _ in range(int(seconds * 4)):
        dog.look()
        world.now += 0.25


def test_others_are_looked_after_while_a_model_loads(world: World) -> None:
    loading = Later()
    dog = world.dog(loading)
    world.has(dead(zombie=True, model="preprocess"), living())
    look(world, dog, 1)
    world.has(dead(zombie=True))
    look(world, dog, 1)
    assert (world.calls, len(loading.loads), dog.deaths) == (["unload"] * 2, 2, 2)
    assert not any("ready again" in line for line in world.said)
    for load in loading.loads:
        load.set_result(None)
    dog.look()
    assert [line.split()[0] for line in world.said if "ready again" in line] == ["preprocess", "generate"]


def test_a_death_while_the_first_models_load_ends_the_start(world: World) -> None:
    """Triton notices most of them, and then says why. One that it has let lie for ten seconds it never sees."""
    dog = world.dog()
    for stub in (dead(zombie=True), dead(zombie=True, model="")):
        world.has(stub, living())
        dog.look_at_start()
        world.now += 9.9
        dog.look_at_start()
        world.now += 0.1
        with pytest.raises(LaunchError, match=f"process {stub.process.pid} of .* died while it was loading"):
            dog.look_at_start()


def test_what_triton_reaped_itself_ends_no_start(world: World) -> None:
    dog = world.dog()
    world.has(dead(zombie=False), living())
    dog.look_at_start()
    world.now += 100
    dog.look_at_start()
    assert len(world.stubs) == 1


@pytest.mark.parametrize("model", ["generate", ""])
def test_a_load_of_ours_that_never_ends_ends_the_server(world: World, model: str) -> None:
    dog = world.dog(Later())
    world.has(dead(zombie=True))
    look(world, dog, 1)
    world.ready = False
    world.has(dead(zombie=True, model=model))
    look(world, dog, 10)
    with pytest.raises(LaunchError, match="died while it was loading, and Triton waits for it for ever"):
        look(world, dog, 1)


@pytest.mark.parametrize("model", ["generate", ""])
def test_a_load_of_an_operators_that_never_ends_is_told_and_nobody_is_harmed(world: World, model: str) -> None:
    world.ready = False  # the new version, not the one that serves
    dog = world.dog()
    world.has(living(), dead(zombie=True, model=model))
    look(world, dog, 60)
    assert (world.calls, dog.deaths) == ([], 0)
    [said] = world.said
    assert "Triton does not notice, so that never ends. What is ready serves on" in said
