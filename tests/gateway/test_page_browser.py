"""The status page in a real Chromium, where one is installed: it shows, streams, and runs nothing that a model says."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from heptagram_gateway.page.engine import numbers_of
from heptagram_wire.events import Event, Failure, Finish, ReasoningDelta, SpeculativeStats, Stats, TextDelta, Usage
from tests.client.samples import CALL, START, TEXT
from tests.gateway.front import Running, running
from tests.gateway.metrics_server import SAMPLES, metrics_server
from tests.gateway.scripted import ScriptedServer, endless, play

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.full, pytest.mark.skipif(CHROMIUM is None, reason="needs chromium in PATH")]

EVIL = "<img src=x onerror='document.title=1'><script>document.title=2</script>"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """A page, what its console said, and the hosts it asked."""

    def __init__(self, browser: Any, url: str, viewport: dict[str, int], scheme: str = "light") -> None:
        self.page = browser.new_page(viewport=viewport, color_scheme=scheme)
        self.page.set_default_timeout(15_000)
        self.said: list[str] = []
        self.asked: set[str] = set()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.add(request.url.split("/")[2]))
        self.page.goto(url)

    def shows(self, place: str, text: str) -> None:
        self.page.locator(place, has_text=text).wait_for()

    def send(self) -> None:
        self.page.click("#send")

    def text(self, place: str) -> str:
        return str(self.page.locator(place).inner_text())

    def close(self) -> None:
        self.page.close()


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_it_shows_and_streams(
    browser: Any, front: Running, server: ScriptedServer, viewport: dict[str, int], scheme: str
) -> None:
    events: list[Event] = [START, ReasoningDelta(EVIL), TextDelta(EVIL), TextDelta("x" * 500), *CALL[1:]]
    server.script = play(*[[event] for event in events])
    visit = Visit(browser, front.url, viewport, scheme)
    visit.shows("#ready", "ready")
    visit.shows("#models", "completions")
    visit.shows("#engine-note", "--triton-metrics")
    visit.page.select_option("#choice", "get_weather")
    visit.send()
    visit.shows("#facts", "tool_calls")
    assert EVIL in visit.text(".piece.reasoning pre")
    assert visit.text(".piece.text pre") == EVIL + "x" * 500
    assert visit.text(".piece.call pre") == '{"command": "ls"}'
    assert "first event" in visit.text("#facts")
    assert visit.page.title() == "Heptagram"
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    asked = server.requests[-1][1]
    assert asked["tool_choice"] == {"type": "function", "function": {"name": "get_weather"}}
    assert asked["tools"][0]["function"]["strict"] is True
    assert visit.said == []
    assert visit.asked == {front.url.removeprefix("http://")}
    visit.close()


def test_stop_cancels(browser: Any, front: Running, server: ScriptedServer) -> None:
    server.script = endless([START], repeat=TextDelta("on "))
    visit = Visit(browser, front.url, PHONE)
    visit.send()
    visit.shows(".piece.text pre", "on on on")
    assert visit.page.is_disabled("#send")
    visit.page.click("#stop")
    visit.shows("#facts", "stopped")
    front.at_rest()
    assert server.left == 1
    visit.close()


def test_failures_are_told(browser: Any, front: Running, server: ScriptedServer) -> None:
    server.script = play([START], [TextDelta("a")], [Failure("internal", EVIL)])
    server.ready = {}
    visit = Visit(browser, front.url, PHONE)
    visit.shows("#ready", "not ready")
    visit.shows("#reason", "'chat' is not ready")
    visit.shows("#models-note", "No model is ready")
    visit.send()
    visit.shows("#failure", EVIL)
    visit.page.fill("#tools", "[{")
    visit.send()
    assert visit.text("#tools-fault")
    assert len(server.requests) == 1
    visit.page.fill("#tools", "")
    server.script = play(TEXT)
    visit.send()
    visit.shows(".piece.text pre", "Hello")
    assert "tools" not in server.requests[-1][1]
    visit.close()


def test_a_key_is_asked_for_and_forgotten(browser: Any) -> None:
    with running(play(TEXT), api_keys=("secret",)) as front:
        visit = Visit(browser, front.url, PHONE)
        visit.shows("#models-note", "needs the API key")
        visit.page.fill("#key", "wrong")
        visit.send()
        visit.shows("#failure", "no valid API key")
        visit.page.fill("#key", "secret")
        visit.page.press("#key", "Enter")
        visit.shows("#models", "chat")
        visit.send()
        visit.shows(".piece.text pre", "Hello")
        assert visit.page.evaluate("localStorage.length + sessionStorage.length + document.cookie.length") == 0
        visit.page.reload()
        visit.shows("#models-note", "needs the API key")
        visit.close()


def test_the_engines_numbers(browser: Any) -> None:
    with metrics_server() as metrics, running(play(TEXT), triton_metrics=metrics.url) as front:
        visit = Visit(browser, front.url, DESKTOP)
        visit.shows("#numbers", "1,200")
        metrics.text = SAMPLES.replace("1.2e3", "2.2e3")
        visit.shows("#numbers", "2,200")
        assert float(visit.text("#numbers div:first-child dd")) > 0
        assert numbers_of(metrics.text)["generation_tokens_total"] == 2200
        visit.close()


def test_usage_and_drafts(browser: Any, front: Running, server: ScriptedServer) -> None:
    drafts = SpeculativeStats(acceptance_histogram=(1, 0, 4, 0, 0, 0, 0, 0), num_draft_tokens=35)
    server.script = play(
        [START], [TextDelta("a")], [Finish("length", Usage(10, 77), Stats(speculative_decoding=drafts))]
    )
    visit = Visit(browser, front.url, DESKTOP)
    visit.send()
    visit.shows("#facts", "77 tokens")
    visit.shows("#facts", "8 of 35")
    visit.close()
