"""``heptagram train-drafter`` from prompts to a drafter's folder, over a tiny model with a real tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heptagram_backend.drafts.dspark.config import DSparkConfig
from heptagram_backend.training.drafter_command import command
from heptagram_backend.training.drafter_data import AnswerSet
from tests.formats.smollm2 import reference
from tests.targets.tiny import save_tiny

TOOL = {
    "type": "function",
    "function": {
        "name": "set_light",
        "description": "Switch a light.",
        "parameters": {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]},
    },
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_tiny(
        tmp_path_factory.mktemp("target"), "llama", vocab_size=49_152, eos_token_id=2, num_hidden_layers=3
    )
    reference().save_pretrained(folder)
    return folder


def _prompts(path: Path) -> Path:
    def line(text: str, *, held_out: bool = False, **request: object) -> str:
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 12, **request}
        return json.dumps({"kind": "tool" if request else "chat", "group": text, "held_out": held_out, "request": body})

    called: dict[str, Any] = {"tools": [TOOL], "tool_choice": "required", "max_tokens": 40}
    texts = [line(f"Say {word}.", held_out=word == "tea") for word in ("tea", "milk", "salt")]
    texts += [line("Switch it on.", **called), line("Switch it off.", held_out=True, **called)]
    texts.append(line("This cannot be served.", temperature=-1))
    path.write_text("\n".join(texts))
    return path


def test_from_prompts_to_a_drafter(checkpoint: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folders = [
        "--model",
        str(checkpoint),
        "--answers",
        str(tmp_path / "answers"),
        "--output",
        str(tmp_path / "drafter"),
    ]
    prompts = ["--prompts", str(_prompts(tmp_path / "prompts.jsonl")), "--sampled", "0", "--max-model-len", "256"]
    shape = ["--layers", "1", "--taps", "1", "--markov-rank", "4", "--draft-vocab", "64"]
    assert command([*folders, *prompts, *shape, "--steps", "0"]) == 0
    answers = list(AnswerSet.open(tmp_path / "answers").read())
    assert [(answer.kind, answer.held_out) for answer in answers] == [
        ("chat", True),
        ("chat", False),
        ("chat", False),
        ("tool", False),
        ("tool", True),
    ]
    assert not (tmp_path / "drafter").exists()

    assert command([*folders, *shape, "--steps", "3", "--batch", "1"]) == 0
    assert "step 3 of 3" in capfd.readouterr().err
    config = DSparkConfig.load(tmp_path / "drafter")
    assert (config.layers, config.draft_vocab_size, config.target_layer_ids) == (1, 64, (1,))
    assert set(json.loads((tmp_path / "drafter" / "results.json").read_text())["held_out"]) == {"chat", "tool"}

    assert command([*folders, *shape, "--steps", "5", "--batch", "1"]) == 0
    assert "going on from step 3" in capfd.readouterr().err


def test_what_cannot_be_is_said_in_a_line(checkpoint: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folders = ["--model", str(checkpoint), "--answers", str(tmp_path / "none"), "--output", str(tmp_path / "drafter")]
    assert command(folders) == 1
    assert command([*folders, "--taps", "9", "--prompts", str(_prompts(tmp_path / "prompts.jsonl"))]) == 1
    assert command([*folders, "--taps", "1", "--prompts", str(tmp_path / "missing.jsonl")]) == 1
    told = capfd.readouterr().err.splitlines()
    starts = [
        "heptagram train-drafter: answers:",
        "heptagram train-drafter: taps: 9",
        "heptagram train-drafter: prompts:",
    ]
    assert [line.startswith(start) for line, start in zip(told, starts, strict=True)] == [True] * 3
