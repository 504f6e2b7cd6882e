"""Many at once through the gateway and the real server, onto the scripted engine."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import psutil
import pytest

from tests.gateway.front import data_of, joined
from tests.server.gateway import Gateway, running_gateway
from tests.server.probe import Script
from tests.server.served import Served

pytestmark = pytest.mark.server

CLIENTS = 32
PATH = "/v1/chat/completions"


@pytest.fixture(scope="module")
def gateway(probes: Served) -> Iterator[Gateway]:
    with running_gateway(probes.grpc_url, "--triton-metrics", probes.process.address.metrics_url) as gateway:
        yield gateway
        assert gateway.stop() == 0


@pytest.fixture(autouse=True)
def nothing_leaks(probes: Served) -> Iterator[None]:
    """A request in flight would keep the model from being unloaded."""
    yield
    probes.settle()
    probes.reload()


def body(script: Script, *, stream: bool) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": script.to_json()}], "stream": stream}


def ask(client: httpx2.Client, number: int) -> bool:
    """Whether everything has come, and nothing else."""
    deltas = 1 + number % 20
    answer = client.post(PATH, json=body(Script(deltas=deltas, step_ms=2), stream=number % 2 == 0))
    assert answer.status_code == 200, answer.text
    text = (
        joined(data_of(answer.text), "content")
        if number % 2 == 0
        else answer.json()["choices"][0]["message"]["content"]
    )
    return bool(text == "".join(f"{piece} " for piece in range(deltas)))


def load(gateway: Gateway, requests: int) -> None:
    with httpx2.Client(base_url=gateway.url, timeout=60, verify=False) as client, ThreadPoolExecutor(CLIENTS) as pool:
        assert all(pool.map(lambda number: ask(client, number), range(requests)))


def test_two_hundred_requests_at_once(gateway: Gateway, probes: Served) -> None:
    before = probes.settle()
    load(gateway, 200)
    probes.grown("request_success_total", before, 200)
    with httpx2.Client(base_url=gateway.url, verify=False) as client:
        status = client.get("/status").json()
    assert status["engine"]["request_success_total"] >= 200
    assert (status["engine"]["num_requests_running"], status["gateway"]["running"]) == (0, 0)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_memory_stays_flat(gateway: Gateway) -> None:
    process = psutil.Process(gateway.process.pid)
    load(gateway, 400)
    before = process.memory_info().rss
    for _ in range(4):
        load(gateway, 200)
    assert process.memory_info().rss - before < 8 << 20


def test_a_hundred_random_disconnects(gateway: Gateway, probes: Served) -> None:
    """None of them would end by itself within the test."""
    before = probes.settle()
    endless = Script(deltas=100_000, step_ms=40)

    def visit(seed: int) -> None:
        order = random.Random(seed)
        client = socket.create_connection(gateway.address, timeout=20)
        data = httpx2.Request("POST", gateway.url, json=body(endless, stream=order.random() < 0.7)).content
        head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(data)}\r\n\r\n"
        client.sendall(head.encode() + data)
        time.sleep(order.random() * 0.3)
        if order.random() < 0.5:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(visit, range(100)))
    after = probes.settle()
    assert 0 < after["requests_cancelled_total"] - before["requests_cancelled_total"] <= 100
    load(gateway, 8)
