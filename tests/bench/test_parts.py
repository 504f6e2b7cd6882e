"""The parts of the benchmarks that no number would betray: turns, tables, the forced target, the peers' protocol."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks import machine
from benchmarks.forced import TeacherForced
from benchmarks.peers.__main__ import report
from benchmarks.peers.environments import PEERS, PeerError, python_of
from benchmarks.peers.needs import needs
from benchmarks.peers.process import Worker
from benchmarks.peers.worker import Answer, Prompt, Workload
from benchmarks.table import table
from benchmarks.turns import in_turn
from benchmarks.workload import closed, ordinary
from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.generation import GenerationRequest, OutputSpec
from heptagram_backend.targets.scripted import ScriptedTarget

PROMPT = Prompt([1, 2], {"type": "object", "properties": {"a": {"type": "integer"}}}, {}, 8)


def test_arms_take_turns_and_every_other_round_runs_backwards() -> None:
    order: list[str] = []

    def arm(name: str, value: float) -> dict[str, float]:
        order.append(name)
        return {"x": value * len(order)}

    turns = in_turn({"a": lambda: arm("a", 1.0), "b": lambda: arm("b", 2.0)}, 3)
    assert "".join(order) == "ababbaab"
    assert turns.median("a", "x") == 6.0
    assert turns.ratio("b", "a", "x") == pytest.approx(2 * 8 / 7)


def test_tables_are_markdown() -> None:
    text = table(("arm", "n"), [["a", 1234.5], ["long name", 0.012345], ["c", None]])
    assert text.splitlines() == [
        "| arm       | n      |",
        "|-----------|--------|",
        "| a         | 1234   |",
        "| long name | 0.0123 |",
        "| c         | -      |",
    ]


def test_a_forced_target_says_its_script_wherever_the_drafts_lead() -> None:
    inner = ScriptedTarget(lambda tokens: 0, vocab_size=50, num_slots=2, max_model_len=40)
    target = TeacherForced(inner)
    target.teach(1, [5, 6, 7, 8, 9])
    target.prefill(slot=1, start=0, token_ids=[5])
    target.prefill(slot=0, start=0, token_ids=[5])
    ids = torch.tensor([[6, 7, 40, 40, 0, 0, 0, 0], [6, 0, 0, 0, 0, 0, 0, 0]])
    chosen = target.forward(ids, torch.tensor([1, 1]), torch.tensor([1, 0])).argmax(-1).tolist()
    assert chosen == [[7, 8, 9, 0, 0, 0, 0, 0], [0] * 8]


def test_the_ordinary_arm_is_the_same_request_without_its_constraint() -> None:
    strict = GenerationRequest((1,), OutputSpec("chatml_json", parse_calls=True), "m", 8, ConstraintSpec("ebnf", "x"))
    free = ordinary(strict)
    assert free.constraint is None
    assert replace(free, constraint=strict.constraint, output=strict.output) == strict


def test_objects_are_closed_for_the_peers() -> None:
    inner = {"type": "object", "properties": {}}
    assert closed({"type": "array", "items": inner}) == {
        "type": "array",
        "items": {"additionalProperties": False, **inner},
    }


def test_every_number_comes_with_its_machine() -> None:
    line = machine.headline(machine.describe())
    assert "cores" in line
    assert "Python 3." in line
    assert "commit" in line


def test_a_worker_answers_prompt_by_prompt_and_its_end_is_told(tmp_path: Path) -> None:
    Workload("c", "g", [PROMPT]).write(tmp_path / "work.json")
    assert Workload.read(tmp_path / "work.json").prompts == [PROMPT]
    with Worker(Path(sys.executable), "tests.bench.echo_peer", tmp_path / "work.json", 1) as worker:
        worker.wait()
        answer = worker.ask(0)
        assert (answer.text, answer.tokens) == ('{"a": 2}', 8)
        with pytest.raises(PeerError, match=r"ended with status 1: .*no prompt 7"):
            worker.ask(7)


def test_a_peer_that_cannot_be_made_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PEERS, "none", replace(PEERS["llama_cpp"], packages=("./no/such/folder",)))
    with pytest.raises(PeerError, match=r"pip install .* ended with 1: .*no/such/folder"):
        python_of("none", tmp_path, str)


def test_requirements_of_a_bare_package() -> None:
    listed = ["torch==2.13.0+cpu; x == 'y'", "torchaudio", "numba; extra == 'speed'", "numpy>=2"]
    assert list(needs(listed, ["torchaudio"])) == ["torch==2.13.0; x == 'y'", "numpy>=2"]


def test_the_report_compares_pair_by_pair_and_validates() -> None:
    ours = [[Answer('{"a": 1}', 10, 1.0, 0.5, 1.0)]]
    theirs = [[Answer('{"a": "x"}', 10, 4.0, None, 2.0)]]
    lines = report({"heptagram": ours, "transformers": theirs}, [PROMPT]).splitlines()
    assert [cell.strip() for cell in lines[3].split("|")[1:-1]] == [
        "transformers.generate + XGrammar", "2.5", "-", "4", "200", "0 of 1", "4.00x", "2.00x",
    ]  # fmt: skip
    assert "1 of 1" in lines[2]
