"""Every way in which a client leaves, on the real server: each ends its request, once, and leaks nothing."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from heptagram_wire import tensors as names
from heptagram_wire.events import Finish, Ping, Start
from tests.server.probe import Script
from tests.server.served import Received, Served, number_input, text_input

pytestmark = pytest.mark.server

ENDLESS = Script(deltas=100_000, step_ms=40)
# One step, one poll, and room for a busy machine. The measured time is about 0.1 s.
PROMPT_S = 3.0


@pytest.fixture(autouse=True)
def nothing_leaks(probes: Served) -> Iterator[None]:
    yield
    probes.settle()
    probes.reload()


def started(received: Received) -> Start:
    [event] = received.events
    assert isinstance(event, Start)
    return event


def ended(probes: Served, before: dict[str, float], *, count: int = 1) -> None:
    """The requests end at once, as cancelled, and each is counted once."""
    probes.settle(PROMPT_S)
    probes.grown("requests_cancelled_total", before, count)


def test_a_cancelled_stream(probes: Served) -> None:
    before = probes.settle()
    with probes.chat(ENDLESS.to_json()) as stream:
        started(stream.next())
        stream.next()
        assert probes.metrics()["requests_cancelled_total"] == before["requests_cancelled_total"]
        stream.cancel()
        ended(probes, before)


def test_a_cancel_while_only_pings_are_sent(probes: Served) -> None:
    before = probes.settle()
    with probes.chat(Script(wait_ms=100_000).to_json()) as stream:
        started(stream.next())
        assert stream.next().events == (Ping(),)
        stream.cancel()
        ended(probes, before)


def test_a_killed_client(probes: Served) -> None:
    before = probes.settle()
    with probes.doomed_client(ENDLESS.to_json(), responses=3) as client:
        client.kill()
        client.wait()
        ended(probes, before)


def test_a_closed_http_connection(probes: Served) -> None:
    before = probes.settle()
    host, port = probes.process.address.http_url.split(":")
    body = json.dumps({names.REQUEST: ENDLESS.to_json()})
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST /v2/models/chat/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall((head + body).encode())
        assert b"200 OK" in connection.recv(4096)
    ended(probes, before)


def test_many_cancels_at_once_end_those_and_no_other(probes: Served) -> None:
    before = probes.settle()
    streams = [probes.chat(ENDLESS.to_json()) for _ in range(20)]
    with probes.chat(Script(deltas=40, step_ms=40).to_json()) as survivor:
        for stream in streams:
            started(stream.next())
        with ThreadPoolExecutor(len(streams)) as pool:
            list(pool.map(lambda stream: stream.__exit__(None, None, None), streams))
        last = survivor.rest()[-1].events[-1]
    assert isinstance(last, Finish)
    assert last.reason == "stop"
    ended(probes, before, count=20)


def test_a_cancel_reaches_a_version_that_is_draining(probes: Served) -> None:
    """Its numbers vanish with it, so what shows is that it unloads, long before the stream's own end."""
    with probes.chat(ENDLESS.to_json()) as stream:
        started(stream.next())
        for model in (names.CHAT, names.GENERATE):
            probes.post(f"repository/models/{model}/unload", {})
        stream.next()
        assert [probes.state(model) for model in (names.CHAT, names.GENERATE)] == ["UNLOADING"] * 2
        stream.cancel()
        probes.wait_unloaded(names.GENERATE)
    probes.wait_unloaded(names.CHAT)
    for model in (names.GENERATE, names.CHAT):
        assert probes.post(f"repository/models/{model}/load", {}).status == 200


def test_generate_called_directly_sees_the_cancel_itself(probes: Served) -> None:
    before = probes.settle()
    plan = probes.generate(ENDLESS.to_json(), model=names.PREPROCESS).messages[0]
    inputs = [
        number_input(names.PROMPT_IDS, np.array(plan[names.PROMPT_IDS], dtype=np.int32)),
        text_input(names.PLAN, plan[names.PLAN]),
    ]
    with probes.stream(*inputs, model=names.GENERATE) as stream:
        started(stream.next())
        stream.cancel()
        ended(probes, before)


def test_without_stream_a_direct_cancel_is_seen_too(probes: Served) -> None:
    before = probes.settle()
    quiet = Script(deltas=100_000, stream=False).to_json()
    plan = probes.generate(quiet, model=names.PREPROCESS).messages[0]
    inputs = [
        number_input(names.PROMPT_IDS, np.array(plan[names.PROMPT_IDS], dtype=np.int32)),
        text_input(names.PLAN, plan[names.PLAN]),
    ]
    with probes.stream(*inputs, model=names.GENERATE) as stream:
        while not probes.metrics()["num_requests_running"]:
            time.sleep(0.02)
        stream.cancel()
        ended(probes, before)


def test_a_deadline_ends_a_request_that_nobody_cancels(probes: Served) -> None:
    for stream in (True, False):
        script = Script(deltas=100_000, deadline_ms=200, stream=stream)
        with probes.chat(script.to_json()) as reply:
            last = reply.rest()[-1].events[-1]
        assert isinstance(last, Finish)
        assert last.reason == "deadline"


def test_an_explicit_stop_over_grpc_and_http(probes: Served) -> None:
    before = probes.settle()
    for over_http in (False, True):
        with probes.chat(ENDLESS.to_json()) as stream:
            start = started(stream.next())
            if over_http:
                path = f"models/generate/versions/{start.version}/generate"
                assert probes.post(path, {names.ID: start.id, names.STOP: True}).status == 200
            else:
                inputs = [text_input(names.ID, start.id), number_input(names.STOP, np.array([True]))]
                with probes.stream(*inputs, model=names.GENERATE) as stop:
                    [answer] = stop.rest()
                    assert (answer.events, answer.error) == ((), None)
            last = stream.rest()[-1].events[-1]
        assert isinstance(last, Finish)
        assert last.reason == "cancelled"
    ended(probes, before, count=2)


def test_a_stop_of_an_unknown_id_is_answered_alike(probes: Served) -> None:
    before = probes.settle()
    answer = probes.post("models/generate/generate", {names.ID: "unknown", names.STOP: True})
    assert answer.status == 200
    missing = probes.post("models/generate/generate", {names.STOP: True})
    assert (missing.status, missing.error[:12]) == (400, "[missing] id")
    ended(probes, before, count=0)


def test_a_finished_stream_left_open_holds_the_ensemble(probes: Served) -> None:
    """Triton's own trait, which is why clients close each stream: the model unloads only once it is closed."""
    with probes.chat(Script(deltas=1).to_json()) as stream:
        stream.rest()
        probes.post("repository/models/chat/unload", {})
        time.sleep(0.5)
        assert probes.state("chat") == "UNLOADING"
    probes.wait_unloaded("chat")
    probes.post("repository/models/chat/load", {})
