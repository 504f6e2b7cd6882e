"""``heptagram chat``: what it sends, what it prints, how it exits."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from heptagram_client.chat import run
from heptagram_client.errors import (
    ConnectError,
    GenerationError,
    HeptagramClientError,
    IdleTimeoutError,
    OverloadedError,
    ProtocolError,
    RequestRefusedError,
    ServerError,
)
from heptagram_client.render import Renderer, wants_colour
from heptagram_client.transports.memory import ReplayTransport, Step
from heptagram_wire.codec import decode_event
from heptagram_wire.errors import WireError
from heptagram_wire.events import ArgumentsDelta, CallStart, Event, Failure, Finish, FinishReason, Ping, TextDelta
from tests.children import child
from tests.client.fake_triton import endless, grpc_server
from tests.client.samples import CALL, START, TEXT, each_alone

TOOLS = [{"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}]


def chat(*arguments: str, script: Sequence[Step] = (TEXT,)) -> tuple[int, ReplayTransport]:
    transport = ReplayTransport(script)
    return run(["Hello", *arguments], transport), transport


def test_the_simplest_request(capsys: pytest.CaptureFixture[str]) -> None:
    code, transport = chat(script=each_alone(TEXT))
    assert code == 0
    assert transport.requests == [("chat", {"messages": [{"role": "user", "content": "Hello"}]})]
    assert capsys.readouterr() == ("Hello\n", "")


@pytest.mark.parametrize("content", [TOOLS, {"tools": TOOLS}])
def test_tools_from_a_file(tmp_path: Path, content: object) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(content))
    code, transport = chat(
        "--tools", str(path), "--tool-choice", "shell", "--max-tokens", "9", "--system", "Be short.",
        "--deadline-ms", "500", "--model", "other",
    )  # fmt: skip
    assert code == 0
    assert transport.requests == [
        (
            "other",
            {
                "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello"}],
                "tools": TOOLS,
                "tool_choice": {"type": "function", "function": {"name": "shell"}},
                "max_tokens": 9,
                "heptagram": {"deadline_ms": 500},
            },
        )
    ]


@pytest.mark.parametrize("choice", ["required", "auto", "none"])
def test_tool_choices(choice: str) -> None:
    assert chat("--tool-choice", choice)[1].requests[0][1]["tool_choice"] == choice


@pytest.mark.parametrize("content", [None, "{", '{"tool": []}', '"shell"', "[" * 100_000, "\udcff"])
def test_tools_that_cannot_be_used(tmp_path: Path, content: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tools.json"
    if content is not None:
        path.write_bytes(content.encode(errors="surrogateescape"))
    code, transport = chat("--tools", str(path))
    assert (code, transport.requests) == (2, [])
    assert re.fullmatch(r"heptagram chat: --tools .*tools\.json: .+\n", capsys.readouterr().err)


def test_a_url_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["Hello", "--url", "https://host"]) == 2
    assert "scheme 'https' is not supported" in capsys.readouterr().err


def test_wrong_arguments() -> None:
    with pytest.raises(SystemExit) as caught:
        run(["Hello", "--max-tokens", "many"])
    assert caught.value.code == 2


def test_the_prompt_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe\n"))
    transport = ReplayTransport([TEXT])
    run(["-"], transport)
    assert transport.requests[0][1]["messages"][-1]["content"] == "from a pipe\n"


@pytest.mark.parametrize("script", [each_alone(CALL), [CALL]])
def test_reasoning_and_calls_are_told_apart(script: list[Step], capsys: pytest.CaptureFixture[str]) -> None:
    assert chat(script=script)[0] == 0
    assert capsys.readouterr().out == '[reasoning] list it\n[call] shell {"command": "ls"}\n'


def test_no_stream_prints_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert chat("--no-stream", script=each_alone(CALL))[0] == 0
    assert capsys.readouterr().out == '[reasoning] list it\n[call] shell {"command": "ls"}\n'


def test_json_is_one_event_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert chat("--json", script=each_alone(CALL))[0] == 0
    assert [decode_event(line) for line in capsys.readouterr().out.splitlines()] == CALL


def test_json_without_stream_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert chat("--json", "--no-stream", script=[CALL])[0] == 0
    (line,) = capsys.readouterr().out.splitlines()
    message = json.loads(line)
    assert message["tool_calls"] == [
        {"id": "call-0", "name": "shell", "arguments": '{"command": "ls"}', "complete": True}
    ]
    assert message["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(("reason", "code"), [("stop", 0), ("length", 5), ("deadline", 6), ("cancelled", 6)])
def test_only_a_good_finish_is_zero(reason: FinishReason, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert chat(script=[[START, TextDelta("a"), Finish(reason)]])[0] == code
    assert bool(capsys.readouterr().err) == bool(code)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestRefusedError(WireError("missing", "give it", "messages")), 3),
        (ConnectError("nobody there"), 4),
        (OverloadedError(WireError("overloaded", "try again")), 4),
        (IdleTimeoutError(3), 4),
        (GenerationError(WireError("internal", "broken")), 1),
        (ServerError("unknown model"), 1),
        (ProtocolError("nonsense"), 1),
    ],
)
def test_exit_codes_of_errors(error: HeptagramClientError, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert chat(script=[error])[0] == code
    assert capsys.readouterr() == ("", f"heptagram chat: {error}\n")


def test_a_failure_ends_the_line_and_is_the_last_event_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    script: list[Step] = [[START, TextDelta("half a sen")], [Failure("internal", "broken")]]
    assert chat(script=script)[0] == 1
    assert capsys.readouterr() == ("half a sen\n", "heptagram chat: broken\n")
    assert chat("--json", script=script)[0] == 1
    assert decode_event(capsys.readouterr().out.splitlines()[-1]) == Failure("internal", "broken")


def shown(events: list[Event], *, colour: bool) -> str:
    out = io.StringIO()
    renderer = Renderer(out, colour=colour)
    for event in events:
        renderer.show(event)
    renderer.close()
    return out.getvalue()


def test_colours() -> None:
    text = shown([*CALL[:-1], TextDelta("done\n")], colour=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", text) == 'list it\n[call] shell {"command": "ls"}\ndone\n'
    assert text.startswith("\x1b[2mlist it\x1b[0m")
    assert text.endswith("\ndone\n")


def test_interleaved_parts_start_new_lines() -> None:
    events: list[Event] = [
        CallStart(0, "a", "f"),
        ArgumentsDelta(0, "{"),
        TextDelta("text"),
        Ping(),
        TextDelta("!"),
        ArgumentsDelta(0, "}"),
    ]
    assert shown(events, colour=False) == "[call] f {\ntext!\n[call, continued] }\n"


def test_a_model_cannot_drive_the_terminal() -> None:
    assert shown([TextDelta("a\x1b[2Jb\x9bc\rd\te\n")], colour=True) == "a\\x1b[2Jb\\x9bc\\x0dd\te\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_only_where_it_is_wanted() -> None:
    assert wants_colour(Terminal(), {"TERM": "xterm"})
    assert not wants_colour(Terminal(), {"TERM": "xterm", "NO_COLOR": "1"})
    assert not wants_colour(Terminal(), {"TERM": "dumb"})
    assert not wants_colour(io.StringIO(), {"TERM": "xterm"})


def start_chat(url: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return child(
        [sys.executable, "-m", "heptagram_client.main", "chat", "Hello", "--url", url],
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONWARNINGS": "error"},
    )


def test_ctrl_c_cancels_and_exits_130() -> None:
    with grpc_server(endless([START], TextDelta("a"))) as (url, log), start_chat(url) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1) == "a"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert "Traceback" not in process.stderr.read()
        assert log.left.wait(5)


def test_a_reader_that_leaves_ends_the_run_quietly() -> None:
    with grpc_server(endless([START], TextDelta("a"))) as (url, log), start_chat(url) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1) == "a"
        process.stdout.close()
        assert process.wait(20) == 1
        assert process.stderr.read() == ""
        assert log.left.wait(5)
