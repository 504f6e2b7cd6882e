"""The dispatcher, the demo, and what a light install may import."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import EntryPoint, version
from typing import Any

import pytest

from heptagram_client import demo, main
from heptagram_client.transports.memory import ReplayTransport
from heptagram_wire.events import ArgumentsDelta, CallEnd, CallStart, Event, Finish
from tests.client.fake_triton import Item, grpc_server, http_server

GROUP = main.GROUP


def fake_entries(monkeypatch: pytest.MonkeyPatch, **targets: str) -> None:
    entries = [EntryPoint(name, target, GROUP) for name, target in targets.items()]
    monkeypatch.setattr(main, "entry_points", lambda group: entries)


def returns_seven(argv: list[str]) -> int:
    return 7 if argv == ["a", "b"] else 1


def interrupted(argv: list[str]) -> int:
    raise KeyboardInterrupt


def test_a_command_gets_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_entries(monkeypatch, seven=f"{__name__}:returns_seven")
    assert main.main(["seven", "a", "b"]) == 7


def test_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_entries(monkeypatch, x=f"{__name__}:interrupted")
    assert main.main(["x"]) == 130


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in ("chat", "demo", "serve"))
    assert main.main([]) == 2
    assert capsys.readouterr().out == text
    assert main.main(["--version"]) == 0
    assert capsys.readouterr().out == f"heptagram {version('heptagram')}\n"


def test_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["chatt"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("heptagram: unknown command 'chatt'; there are: chat, demo")
    assert error.count("\n") == 1


def test_a_missing_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake_entries(monkeypatch, serve="heptagram_backend.no_such_module:command")
    assert main.main(["serve"]) == 1
    assert capsys.readouterr().err == (
        "heptagram: `serve` needs heptagram_backend.no_such_module, which is not installed: "
        "pip install 'heptagram[backend]'\n"
    )


def test_a_missing_module_of_the_client_is_our_own_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_entries(monkeypatch, x="heptagram_client.no_such_module:command")
    with pytest.raises(ModuleNotFoundError):
        main.main(["x"])


def call(arguments: str, name: str = "shell") -> list[Event]:
    return [CallStart(0, "call-0", name), ArgumentsDelta(0, arguments), CallEnd(0), Finish("tool_calls")]


def test_the_demo_over_both_fronts(capsys: pytest.CaptureFixture[str]) -> None:
    def script(body: dict[str, Any]) -> Iterator[Item]:
        assert body == demo.REQUEST | {"stream": True}
        yield call('{"command":"pwd"}')

    with grpc_server(script) as (grpc_url, _), http_server(script) as (http_url, _):
        where = ["--grpc", grpc_url.partition("://")[2], "--http", http_url.partition("://")[2]]
        assert demo.command([*where, "--openai", "none"]) == 0
    assert capsys.readouterr().out == 'grpc: shell {"command": "pwd"} valid\nhttp: shell {"command": "pwd"} valid\n'


@pytest.mark.parametrize(
    ("events", "line"),
    [
        (call('{"command": 1}'), 'grpc: shell {"command": 1} invalid\n'),
        (call('{"command": "a", "b": 1}'), 'grpc: shell {"command": "a", "b": 1} invalid\n'),
        (call("{}"), "grpc: shell {} invalid\n"),
        (call('{"command": "a"}', name="bash"), 'grpc: bash {"command": "a"} invalid\n'),
        (call("[]"), ""),
        ([Finish("stop")], ""),
        ([CallStart(0, "call-0", "shell"), ArgumentsDelta(0, '{"comm'), Finish("length")], ""),
    ],
)
@pytest.mark.parametrize("library", [True, False])
def test_the_demo_finds_what_is_invalid(
    events: list[Event],
    line: str,
    library: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not library:
        monkeypatch.setitem(sys.modules, "jsonschema", None)
    assert not demo.try_front("grpc", "localhost:1", ReplayTransport([events]))
    captured = capsys.readouterr()
    assert captured.out == line
    assert bool(captured.err) != bool(line)


def test_the_demo_without_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.command(["--grpc", "127.0.0.1:1", "--http", "127.0.0.1:1", "--openai", "127.0.0.1:1"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.split(":")[0] for line in captured.err.splitlines()] == ["grpc", "http", "openai"]


def completion(arguments: str, *, calls: int = 1, reason: str = "tool_calls") -> str:
    function = {"name": "shell", "arguments": arguments}
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": function}] * calls}
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": reason}]})


@pytest.mark.parametrize(
    ("status", "text", "line"),
    [
        (200, completion('{"command":"ls"}'), 'openai: shell {"command": "ls"} valid\n'),
        (200, completion('{"command":1}'), 'openai: shell {"command": 1} invalid\n'),
        (200, completion('{"comm', reason="length"), ""),
        (200, completion('{"comm'), ""),
        (200, completion("{}", calls=2), ""),
        (200, completion("{}", calls=0, reason="stop"), ""),
        (200, "{}", ""),
        (200, "[]", ""),
        (200, "no JSON", ""),
        (401, completion('{"command":"ls"}'), ""),
    ],
)
def test_the_demo_over_the_gateway(
    status: int, text: str, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEPTAGRAM_API_KEY", "k")
    with openai_server(status, text) as (address, asked):
        assert demo.try_openai(address) == line.endswith(" valid\n")
    captured = capsys.readouterr()
    assert captured.out == line
    assert bool(captured.err) != bool(line)
    assert asked == [("/v1/chat/completions", "Bearer k", {"model": "chat", **demo.REQUEST})]


@contextmanager
def openai_server(status: int, text: str) -> Iterator[tuple[str, list[Any]]]:
    """Gives one answer, whatever it is asked; yields its address and what it was asked."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.path, self.headers["Authorization"], json.loads(body)))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield f"127.0.0.1:{server.server_port}", asked
        thread.join()


LIGHT = textwrap.dedent(
    """
    import contextlib, io, sys

    HEAVY = {
        "torch", "xgrammar", "transformers", "tokenizers", "jsonschema", "yaml", "jinja2",
        "heptagram_backend", "heptagram_kernels",
    }

    class Refuse:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in HEAVY:
                raise ModuleNotFoundError(f"refused: {name}", name=name)

    sys.meta_path.insert(0, Refuse())

    import heptagram_client
    from heptagram_client import main
    from heptagram_client.transports.memory import InProcessTransport
    from heptagram_wire.events import Finish, TextDelta

    assert "grpc" not in sys.modules, "a transport is imported when it is chosen"
    handler = lambda model, request: [[TextDelta("Hi")], [Finish("stop")]]
    with heptagram_client.Client(transport=InProcessTransport(handler)) as client:
        assert client.complete({"messages": []}).content == "Hi"

    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            main.main(["chat", "--help"])
        except SystemExit as stop:
            assert stop.code == 0, stop.code
    assert "--tool-choice" in out.getvalue()

    for url in ("grpc://127.0.0.1:1", "http://127.0.0.1:1"):
        with heptagram_client.Client(url) as client:
            try:
                client.complete({"messages": []})
            except heptagram_client.ConnectError:
                pass

    with contextlib.redirect_stderr(io.StringIO()) as errors:
        assert main.main(["serve"]) == 1
    assert errors.getvalue().endswith("pip install 'heptagram[backend]'\\n"), errors.getvalue()

    loaded = sorted(HEAVY & {name.partition(".")[0] for name in sys.modules})
    assert not loaded, loaded
    print("light")
    """
)


def test_a_light_install_imports_nothing_heavy() -> None:
    result = subprocess.run([sys.executable, "-W", "error", "-c", LIGHT], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "light\n", "")
