"""``heptagram train-adapter`` on a tiny model with SmolLM2's tokenizer: trained, merged, served, asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from heptagram_backend.adapter import AdapterConfig
from heptagram_backend.checkpoint import resolve
from heptagram_backend.release import EngineOptions
from heptagram_backend.tokenizer import CheckpointTokenizer
from heptagram_backend.training import chat, prompts
from heptagram_backend.training.command import command
from heptagram_backend.training.evaluate import Question, evaluate
from tests.formats import smollm2
from tests.targets.tiny import save_tiny
from tests.training.test_evaluate import BODY


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = save_tiny(tmp_path / "tiny", "llama", vocab_size=49_152, hidden_size=32)
    for path in smollm2.folder().iterdir():
        shutil.copy(path, folder / path.name)
    return folder


def test_a_run_is_trained_taken_up_and_served(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chat, "chat_prompts", lambda: prompts.chat_prompts()[:20])
    output = tmp_path / "adapter"
    arguments = [str(output), "--model", str(checkpoint), "--rank", "2"]
    assert command([*arguments, "--steps", "1"]) == 0
    assert command([*arguments, "--steps", "2"]) == 0
    said = capsys.readouterr().err
    assert "step 1/1" in said
    assert "going on behind step 1" in said
    assert "step 2/2" in said
    assert AdapterConfig.load(output).training["step"] == 2
    assert len((output / "chat.jsonl").read_text().splitlines()) == 20

    merged = resolve(str(checkpoint), str(output))
    assert CheckpointTokenizer(merged).token_id("｜DSML｜") == 4
    asked = [Question("one", BODY, tools_of=("f",)), Question("none", BODY)]
    options = EngineOptions(max_num_seqs=2, max_model_len=1024, mask_pool_rows=64)
    scores = evaluate(merged, "chatml_dsml", asked, lambda _: None, max_tokens=8, options=options)
    assert {key: score.asked for key, score in scores.items()} == {
        ("one", "free"): 1,
        ("none", "free"): 1,
        ("one", "constrained"): 1,
    }


def test_a_checkpoint_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command([str(tmp_path / "out"), "--model", str(tmp_path / "nowhere")]) == 1
    assert "no such folder" in capsys.readouterr().err
