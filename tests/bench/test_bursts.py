"""Many answers at once: percentiles, gaps and speeds from when tokens came, tables, the picture's data, the order."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import streams
from benchmarks.peers.bursts import US, Row, panels, percentile, report
from benchmarks.peers.environments import PeerError
from benchmarks.peers.process import Worker
from benchmarks.peers.worker import Burst, How, Prompt, Stream, Workload

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
PROMPT = Prompt([1, 2], SCHEMA, {}, 8)
TITLES = {US: "ours", "peer": "theirs"}


def burst(*times: list[float], text: str = '{"a": 1}') -> Burst:
    return Burst([Stream(text, each) for each in times], cpu_s=1.0)


def row(kind: str = "ordinary") -> Row:
    ours = [[burst([1.0, 1.0, 1.5, 1.5, 2.0], [2.0, 4.0])], [burst([1.0])], [burst([0.5])]]
    theirs = [[burst([2.0, 4.0], text="{}")]] * 3
    return Row(kind, 2, {US: ours, "peer": theirs})


@pytest.mark.parametrize(("percent", "wanted"), [(1, 1), (50, 5), (51, 6), (90, 9), (99, 10), (100, 10)])
def test_percentiles_are_values_that_were_measured(percent: int, wanted: int) -> None:
    assert percentile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], percent) == wanted


def test_a_percentile_of_nothing_is_nought() -> None:
    assert percentile([], 99) == 0.0


def test_tokens_of_one_step_are_one_message() -> None:
    figures = row().figures(US)
    assert figures["gap_p50_ms"] == 500.0  # two gaps of 0.5 s, one of 2 s, none within a step
    assert figures["gap_p99_ms"] == 2000.0
    assert figures["first_p50_ms"] == 1000.0
    assert figures["first_p99_ms"] == 2000.0


def test_the_first_message_is_not_in_what_a_later_token_takes() -> None:
    only = Row("ordinary", 1, {US: [[burst([1.0, 1.0, 1.5, 1.5, 1.6, 2.2])]]})
    assert only.figures(US)["token_ms"] == pytest.approx(300.0)


def test_speeds_are_medians_of_rounds_and_of_their_ratios() -> None:
    figures = row().figures(US)
    assert figures["tokens_per_s"] == 1.75  # 7 tokens in 4 s, 1 in 1 s, 1 in 0.5 s
    assert figures["tokens_per_answer"] == 9 / 4
    assert figures["cpu_ms_per_token"] == pytest.approx(3000 / 9)
    assert row().over("peer") == 1.75 / 0.5


def test_bursts_that_follow_each_other_are_added_up() -> None:
    single = Row("ordinary", 1, {US: [[burst([1.0, 2.0]), burst([1.0, 4.0])]]})
    assert single.figures(US)["tokens_per_s"] == 4 / 6


def test_the_report_has_a_table_for_each_kind_and_validates_constrained_answers() -> None:
    ordinary, constrained = report([row(), row("JSON schema")], TITLES, [SCHEMA, SCHEMA]).split("\n\nJSON schema\n\n")
    assert "valid" not in ordinary
    ours, theirs = ([cell.strip() for cell in line.split("|")[1:-1]] for line in constrained.splitlines()[2:])
    assert ours[:5] == ["ours", "2", "1.75", "1.00x", "1000 / 2000 / 2000"]
    assert theirs[:6] == ["theirs", "2", "0.5", "3.50x", "2000 / 2000 / 2000", "2000 / 2000 / 2000"]
    assert (ours[-1], theirs[-1]) == ("2 of 2", "0 of 1")


def test_the_picture_leaves_out_who_was_not_measured() -> None:
    data = panels([row(), replace(row(), width=4), row("JSON schema")], TITLES | {"gone": "gone"})
    assert list(data) == ["ordinary", "JSON schema"]
    assert list(data["ordinary"]) == ["ours", "theirs"]
    assert list(data["ordinary"]["theirs"]) == [2, 4]
    assert data["ordinary"]["theirs"][4]["tokens_per_s"] == 0.5


def test_every_burst_of_a_round_has_prompts_of_its_own() -> None:
    assert streams.split(1, 16) == [range(1), range(1, 2), range(2, 3), range(3, 4)]
    assert streams.split(4, 16) == [range(4)]
    assert streams.split(16, 16) == [range(16)]
    assert streams.split(1, 2) == [range(1), range(1, 2)]


class _Scripted:
    """A worker that notes what it is asked. Those named in ``dead`` do not load, in ``mortal`` end at ordinary bursts
    that come behind constrained ones."""

    asked: list[tuple[str, int, How]]
    dead: tuple[str, ...] = ()
    mortal: tuple[str, ...] = ()

    def __init__(self, _python: Path, module: str, _workload: Path, _threads: int, *, path: Any = ()) -> None:
        self.name = "former" if path else module.rpartition(".")[2]

    def __enter__(self) -> _Scripted:
        return self

    def __exit__(self, *_: object) -> None: ...

    def wait(self) -> None:
        if self.name in self.dead:
            raise PeerError("it has no legs")

    def ask_all(self, numbers: range, how: How) -> Burst:
        before = [asked.constrained for name, _, asked in self.asked if name == self.name]
        if self.name in self.mortal and not how.constrained and before[-1:] == [True]:
            raise PeerError("it had enough")
        self.asked.append((self.name, len(numbers), how))
        return burst([1.0])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, How]]:
    noted: list[tuple[str, int, How]] = []
    monkeypatch.setattr(_Scripted, "asked", noted, raising=False)
    monkeypatch.setattr(streams, "Worker", _Scripted)
    monkeypatch.setattr(streams, "_former", lambda _folder: [Path("former")])
    return noted


def test_arms_take_turns_burst_by_burst_and_every_other_round_runs_backwards(asked: list[tuple[str, int, How]]) -> None:
    work = Workload("c", "g", [PROMPT] * 4)
    pythons = {"vllm_cpu": Path(sys.executable)}
    absent: dict[str, str] = {}
    rows = streams.compare(work, pythons, 2, 2, absent, widths=(4,))
    assert not absent
    names = [(name, how.drafts) for name, _, how in asked if how.constrained][6:]  # behind the warm-up
    ours = [("heptagram_streams", drafts) for drafts in (7, 3, 0)]
    turns = [*ours, ("former", 7), ("vllm_cpu_streams", 0)]
    assert names == turns + turns[::-1]
    assert [len(row.rounds[US]) for row in rows] == [2, 2]


def test_the_first_round_is_run_and_no_other_that_would_end_too_late(
    asked: list[tuple[str, int, How]], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Workload("c", "g", [PROMPT])
    times = iter([0.0, 10.0, 40.0, 40.0, 70.0, 70.0])  # the start; of each round start and end
    monkeypatch.setattr(streams, "monotonic", lambda: next(times))
    rows = streams.compare(work, {}, 2, 5, {}, widths=(1,), minutes=1.5)
    assert [len(row.rounds[US]) for row in rows] == [2, 2]
    assert asked


def test_a_peer_that_does_not_load_is_left_out_and_said(
    asked: list[tuple[str, int, How]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Scripted, "dead", ("vllm_cpu_streams",))
    absent: dict[str, str] = {}
    work = Workload("c", "g", [PROMPT])
    (row, _) = streams.compare(work, {"vllm_cpu": Path(sys.executable)}, 2, 1, absent, widths=(1,))
    assert absent == {"vllm_cpu, streams, 2 threads": "it has no legs"}
    assert list(row.rounds) == [US, "heptagram_k3", "heptagram_k0", "former"]
    assert asked


def test_a_peer_that_fails_later_is_left_out_of_every_row(
    asked: list[tuple[str, int, How]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Scripted, "mortal", ("vllm_cpu_streams",))
    absent: dict[str, str] = {}
    work = Workload("c", "g", [PROMPT])
    rows = streams.compare(work, {"vllm_cpu": Path(sys.executable)}, 2, 2, absent, widths=(1,))
    assert absent == {"vllm_cpu, streams, 2 threads": "it had enough"}
    assert {name for row in rows for name in row.rounds} == {US, "heptagram_k3", "heptagram_k0", "former"}
    assert {len(each) for row in rows for each in row.rounds.values()} == {2}
    assert ("vllm_cpu_streams", 1, How(constrained=True)) in asked


def test_without_our_own_engine_there_is_nothing_to_compare(
    asked: list[tuple[str, int, How]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Scripted, "dead", ("heptagram_streams",))
    with pytest.raises(PeerError, match="no legs"):
        streams.compare(Workload("c", "g", [PROMPT]), {}, 2, 1, {}, widths=(1,))
    assert not asked


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


def test_a_worker_is_stopped_between_questions(tmp_path: Path) -> None:
    Workload("c", "g", [PROMPT, PROMPT]).write(tmp_path / "work.json")
    with Worker(Path(sys.executable), "tests.bench.echo_bursts", tmp_path / "work.json", 1) as worker:
        worker.wait()
        answer = worker.ask_all([0, 1], How(constrained=True, drafts=3))
        while _state(worker.pid) != "T":  # ends by the test's time limit where it is never stopped
            time.sleep(0.01)
        again = worker.ask_all([1], How(constrained=False))
    assert [json.loads(stream.text) for stream in answer.streams] == [[True, 3]] * 2
    assert (answer.tokens, answer.seconds) == (2, 0.25)
    assert [json.loads(stream.text) for stream in again.streams] == [[False, 7]]


def test_the_former_engine_comes_from_history_or_says_that_it_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "ROOT", tmp_path)
    with pytest.raises(PeerError, match="git has no commit 907d711 here"):
        streams._former(tmp_path)
