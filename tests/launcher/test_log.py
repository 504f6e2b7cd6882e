"""Reading the server's log."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from heptagram_backend.cache import VARIABLE
from heptagram_backend.server.log import LogFollower, failure_report, new_log, status_of
from heptagram_backend.server.progress import Progress


def test_follower_gives_each_complete_line_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes("one\ntwö\nhal".encode())
    follower = LogFollower(log)
    assert follower.lines() == ["one", "twö"]
    assert follower.lines() == []
    with open(log, "ab") as handle:
        handle.write(b"f\n\xff\n")
    assert follower.lines() == ["half", "\ufffd"]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ('I1129 14:51:05.1 85 model_lifecycle.cc:472] "loading: generate:1"', "loading generate"),
        ("I1129 14:51:05.1 85 model_lifecycle.cc:8] \"successfully loaded 'chat'\"", "loaded chat"),
        ('I1129 14:51:05.4 85 model.py:6] "heptagram: warming up 3 shapes"', "warming up 3 shapes"),
        ("heptagram: from standard output", "from standard output"),
        ('E1129 14:51:05.3 85 server.cc:241] "CudaDriverHelper has not been initialized."', None),
    ],
)
def test_status_of_a_line(line: str, status: str | None) -> None:
    assert status_of(line) == status


def test_failure_report_brings_the_fault_and_the_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    fault = "E1 x.cc:642] \"failed to load 'generate' version 1: Internal: ValueError: no\\n\\nAt:\\n  model.py(3)\""
    log.write_text("\n".join([fault, *(f"noise {i}" for i in range(50)), "error: creating server"]))
    report = failure_report(log)
    assert "ValueError: no\n" in report
    assert "noise 40" in report
    assert "noise 3\n" not in report
    assert report.index("failed to load") < report.index("error: creating server")
    assert report.endswith(f"log: {log}")


def test_old_logs_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / "logs").mkdir()
    for number in range(30):
        (tmp_path / "logs" / f"tritonserver-2020-{number:02d}.log").write_text("")
    new_log().write_text("")
    left = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert len(left) == 20
    assert left[0] == "tritonserver-2020-11.log"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_lines_in_a_file_and_one_line_on_a_terminal() -> None:
    plain, terminal = io.StringIO(), Terminal()
    for stream in (plain, terminal):
        with Progress(stream) as progress:
            for text in ("preparing", "loading", "loading"):
                progress.say(text)
    assert [line.split("] ")[1] for line in plain.getvalue().splitlines()] == ["preparing", "loading"]
    assert terminal.getvalue().count("\n") == 1
    assert terminal.getvalue().count("\r") == 3
