"""The status page as its browser gets it: files, headers, and the numbers."""

from __future__ import annotations

import re

import pytest

from heptagram_client.transports.address import Address
from heptagram_gateway.config import ConfigError, read_config
from heptagram_gateway.page.address import metrics_url
from heptagram_gateway.page.engine import numbers_of
from heptagram_gateway.page.static import PATHS
from tests.client.samples import TEXT
from tests.gateway.front import Running, running
from tests.gateway.metrics_server import SAMPLES, metrics_server
from tests.gateway.scripted import ScriptedServer, play

LINK = re.compile(r'(?:src|href)="([^"]+)"|from "\./([^"]+)"')


def test_every_file_is_served_under_the_policy(front: Running) -> None:
    for path, name in PATHS.items():
        answer = front.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(("text/", "image/svg+xml")), name
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    with front.http() as client:
        assert not client.head("/").content


def test_every_link_is_ours_and_leads_somewhere(front: Running) -> None:
    links = set()
    for path in PATHS:
        for page, module in LINK.findall(front.get(path).text):
            links.add(page or f"page/{module}")
    assert len(links) >= len(PATHS) - 1
    for link in links:
        assert not link.startswith(("/", "http", "//"))
        assert front.get(f"/{link}").status_code == 200, link


def test_the_page_holds_nothing_that_its_policy_forbids(front: Running) -> None:
    page = front.get("/").text
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*src=)", page)
    for path in PATHS:
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b", front.get(path).text), path


def test_status_without_triton_metrics(front: Running, server: ScriptedServer) -> None:
    status = front.get("/status").json()
    gateway = {"running": 0, "limit": 256}
    assert status == {"ready": True, "reason": None, "key_required": False, "gateway": gateway, "engine": None}
    server.ready = {}
    answer = front.get("/status")
    assert (answer.status_code, answer.json()["ready"]) == (200, False)
    assert "'chat' is not ready" in answer.json()["reason"]


def test_status_is_open_but_tells_no_names() -> None:
    with running(play(TEXT), api_keys=("secret",)) as front:
        status = front.get("/status").json()
        assert status["key_required"]
        assert "chat" not in str(status)
        assert front.get("/").status_code == 200


def test_the_engines_numbers() -> None:
    """Many readers are one question; an answer that is none shows as none."""
    with metrics_server() as metrics, running(play(TEXT), triton_metrics=metrics.url) as front:
        for _ in range(3):
            engine = front.get("/status").json()["engine"]
            assert engine == {"num_requests_running": 3, "slots_total": 8, "generation_tokens_total": 1200}
        assert metrics.asked < 3
    with metrics_server() as metrics, running(play(TEXT), triton_metrics=metrics.url) as front:
        metrics.status = 500
        assert front.get("/status").json()["engine"] is None
    with running(play(TEXT), triton_metrics="http://127.0.0.1:1/metrics") as front:
        assert front.get("/status").json()["engine"] is None


@pytest.mark.parametrize(
    "text", ["", "nonsense", "heptagram_num_requests_running", "heptagram_num_requests_running{} x", SAMPLES[:40]]
)
def test_text_without_numbers(text: str) -> None:
    assert numbers_of(text) == {}


@pytest.mark.parametrize(
    ("given", "url"),
    [
        (None, "http://t:8002/metrics"),
        ("m", "http://m:8002/metrics"),
        ("m:1", "http://m:1/metrics"),
        ("http://[::1]:9/x", "http://[::1]:9/x"),
    ],
)
def test_where_metrics_are(given: str | None, url: str) -> None:
    assert metrics_url(given, Address("grpc", "t", 8001)) == url


@pytest.mark.parametrize("url", ["https://m", "http://", "http://m?a", "http://a@m", "m:port"])
def test_where_they_cannot_be(url: str) -> None:
    with pytest.raises(ConfigError, match="--triton-metrics"):
        read_config(["--triton-metrics", url], {})
