"""``heptagram doctor``: a whole machine, a bare one, and each way in which a part can be missing or broken."""

from __future__ import annotations

import importlib.metadata
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from heptagram_backend.doctor import machine, packages, selftest
from heptagram_backend.doctor.command import command
from heptagram_backend.doctor.finding import Finding, guarded
from heptagram_backend.doctor.table import as_json, as_table

ROOT = Path(__file__).resolve().parents[2]
NAMES = [
    *("python", "C library", "tritonserver", "numpy", "torch", "transformers", "xgrammar", "cache folder"),
    *("embedded model", "/dev/shm", "ports 8000-8002", "one answer"),
]


def states(report: Any) -> dict[str, str]:
    return {finding["name"]: finding["state"] for finding in report["findings"]}


def test_a_whole_machine(capsys: pytest.CaptureFixture[str]) -> None:
    code = command(["--quick", "--json"])
    report = json.loads(capsys.readouterr().out)
    found = states(report)
    assert list(found) == NAMES
    assert (code == 0) == report["healthy"] == ("missing" not in found.values())
    assert [found[name] for name in ("python", "numpy", "torch", "transformers", "xgrammar")] == ["ok"] * 5
    assert found["one answer"] == "note"


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_bare_interpreter_gets_advice_and_no_traceback(tmp_path: Path, flags: list[str]) -> None:
    """No package at all, not even the client's, and a cache folder that cannot be made."""
    (tmp_path / "file").touch()
    paths = [str(ROOT / name) for name in ("backend", "client", "kernels")]
    run = f"import sys; sys.path += {paths}\nfrom heptagram_backend.doctor.command import command\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{run}sys.exit(command(sys.argv[1:]))", *flags],
        env={"PATH": "", "HEPTAGRAM_CACHE": str(tmp_path / "file" / "cache")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (1, "")
    if flags:
        found = states(json.loads(done.stdout))
        assert list(found) == NAMES
        missing = {name for name, state in found.items() if state == "missing"}
        assert missing >= {"numpy", "torch", "transformers", "xgrammar", "cache folder"}
    else:
        assert "-> pip install 'heptagram[backend]'" in done.stdout
        assert "not tested: it needs torch, transformers" in done.stdout
        assert "Missing or wrong: " in done.stdout.splitlines()[-1]


def test_what_breaks_down_is_a_finding() -> None:
    def broken() -> Finding:
        raise ZeroDivisionError("of no use")

    assert guarded("x", broken).found == "cannot be examined: ZeroDivisionError: of no use"
    assert guarded("x", broken).state == "missing"


def test_the_table_is_aligned_and_coloured_on_a_terminal_only() -> None:
    findings = [Finding("a", "ok", "here"), Finding("longer", "missing", "gone", "get it")]
    assert as_table(findings, colours=False).splitlines() == [
        "a       ok       here",
        "longer  missing  gone",
        "                 -> get it",
        "",
        "Missing or wrong: longer.",
    ]
    coloured = as_table(findings, colours=True)
    assert "\x1b[31mmissing\x1b[0m  gone" in coloured
    assert json.loads(as_json(findings))["healthy"] is False


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("raise ImportError('libcuda is missing')", "ImportError: libcuda is missing"),
        ("import os; os.abort()", "its process ended with status -6"),
        ("import faulthandler, os; faulthandler.disable(); os.kill(os.getpid(), 4)", "ended with status -4"),
    ],
)
def test_a_package_that_crashes(monkeypatch: pytest.MonkeyPatch, code: str, fault: str) -> None:
    monkeypatch.setattr(packages, "_TORCH", code)
    finding = packages.torch()
    assert finding.state == "missing"
    assert fault in finding.found


def test_xgrammar_that_is_missing_says_what_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_version", lambda name: None)
    assert "ordinary requests are served" in packages.xgrammar().advice


def test_numpy_2_beside_an_old_stub(monkeypatch: pytest.MonkeyPatch) -> None:
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.1.0" if name == "numpy" else version(name))
    pytest.importorskip("pytriton")
    finding = packages.triton()
    assert finding.state == "missing"
    assert "numpy<2" in finding.advice
    assert "needs Triton" in packages.numpy().found


def test_a_port_in_use_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(machine, "PORTS", {"--http-port": port})
        finding = machine.ports()
    assert finding.state == "note"
    assert f"port {port} on 127.0.0.1 cannot be used" in finding.advice


def test_a_cache_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HEPTAGRAM_CACHE", str(tmp_path / "file"))
    finding = machine.cache()
    assert finding.state == "missing"
    assert "set HEPTAGRAM_CACHE" in finding.advice


def test_paths_that_the_stub_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "modèles"
    monkeypatch.setenv("HEPTAGRAM_CACHE", str(folder))
    finding = machine.cache()
    assert (finding.state, folder.exists()) == ("missing", False)
    assert "ASCII paths only" in finding.advice
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    finding = machine.python()
    assert finding.state == "missing"
    assert f"the import path has {folder}" in finding.advice


def test_an_embedded_model_that_is_not_converted_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEPTAGRAM_CACHE", str(tmp_path))
    assert packages.checkpoint().found.endswith("not converted yet")


def test_a_self_test_that_crashes_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "_MODULE", "heptagram_backend.no_such_module")
    finding = selftest.one_answer(str)
    assert finding.state == "missing"
    assert "status 1" in finding.found
    assert "no_such_module" in finding.found


@pytest.mark.full
def test_the_self_test_passes_here() -> None:
    told: list[str] = []
    finding = selftest.one_answer(told.append)
    assert finding.state == "ok", finding
    assert "prefill (6 of 6)" in told
