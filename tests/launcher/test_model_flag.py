"""``heptagram serve --model``: any checkpoint of a known kind, tried with tiny random ones."""

from __future__ import annotations

import json
import re
import shutil
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from heptagram_backend.checkpoint import resolve
from tests.launcher.test_command import serve, serving

pytestmark = pytest.mark.server

SIZES: dict[str, Any] = {
    "vocab_size": 49_152,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,  # fewer than the default context: it is lowered to them
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}


def write_random_model(folder: Path, kind: str) -> Path:
    """A checkpoint folder with random weights and SmolLM2's tokenizer."""
    torch.manual_seed(0)
    model: Any = (
        LlamaForCausalLM(LlamaConfig(**SIZES))
        if kind == "llama"
        else Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=16))
    )
    model.to(torch.bfloat16).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(resolve("embedded:smollm2-135m-instruct") / name, folder / name)
    return folder


# The shipped model is a Llama too.
@pytest.mark.parametrize("kind", [pytest.param("llama", marks=pytest.mark.full), "qwen3"])
def test_serves_a_random_checkpoint(tmp_path: Path, kind: str) -> None:
    model = write_random_model(tmp_path / f"tiny-{kind}", kind)
    with serving("--model", str(model), "--max-num-seqs", "2") as (_, _, said):
        found = re.search(r"HTTP (http://\S+)", said)
        assert found, said
        asked = {"messages": [{"role": "user", "content": "Hello"}], "stream": False, "max_tokens": 5}
        body = json.dumps({"request": json.dumps(asked)}).encode()
        with urllib.request.urlopen(f"{found[1]}/v2/models/chat/generate", body, timeout=60) as response:
            events = json.load(response)["events"]
        finish = json.loads(events[-1])
        assert (finish["type"], finish["reason"]) == ("finish", "length")
        assert finish["usage"]["completion_tokens"] == 5


@pytest.mark.full
@pytest.mark.timeout(300)
def test_the_demo_runs_on_the_embedded_deepseek() -> None:
    """No word about its format: it comes from the table of embedded models."""
    with serve("--demo", "--model", "embedded:tiny-deepseek-v4", "--max-num-seqs", "2") as launcher:
        said, _ = launcher.communicate()
    assert launcher.returncode == 0, said
    assert len(re.findall(r"^(grpc|http): shell \{.*\} valid$", said, re.MULTILINE)) == 2, said


def test_a_format_that_the_tokenizer_cannot_write_is_one_line_before_anything_starts() -> None:
    with serve("--model", "embedded:smollm2-135m-instruct", "--format", "deepseek_v4") as launcher:
        said, _ = launcher.communicate()
    assert launcher.returncode == 1
    assert "format: deepseek_v4 needs <｜begin▁of▁sentence｜> and" in said.splitlines()[-1]
    assert "loading models" not in said
