"""DeepSeek V4 by snapshot and replay, against transformers alone.

Prompts and answers are long enough to leave the sliding window (12 tokens), to close many compressed windows (4 and 20
tokens) and to have more of them than the indexer takes (6).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DeepseekV4ForCausalLM, DynamicCache

from heptagram_backend.errors import ReleaseError
from heptagram_backend.release import EngineOptions
from heptagram_backend.targets import load_target
from heptagram_backend.targets.deepseek_v4 import DeepSeekV4Target
from heptagram_backend.targets.invariance import row_invariance
from heptagram_backend.targets.replay import fork
from heptagram_backend.targets.transformers_target import TransformersTarget
from tests.targets.tiny import save_tiny, save_tiny_deepseek


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_deepseek(tmp_path_factory.mktemp("deepseek"))


def make(checkpoint: Path, dtype: str = "float32", **changes: Any) -> DeepSeekV4Target:
    options: dict[str, Any] = {"dtype": dtype, "num_slots": 2, "max_model_len": 600}
    return DeepSeekV4Target(checkpoint, **(options | changes))


def whole(checkpoint: Path, tokens: list[int]) -> Tensor:
    """Logits [len(tokens), V] of transformers itself, without a cache."""
    model = DeepseekV4ForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    with torch.inference_mode():
        logits: Tensor = model(torch.tensor([tokens]), use_cache=False).logits[0]
    return logits


def draw(seed: int, length: int) -> list[int]:
    tokens: list[int] = torch.randint(323, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
    return tokens


def prefill(target: DeepSeekV4Target, slot: int, tokens: list[int]) -> None:
    for start in range(0, len(tokens), target.prefill_chunk):
        target.prefill(slot=slot, start=start, token_ids=tokens[start : start + target.prefill_chunk])


def step(target: DeepSeekV4Target, slot: int, tokens: list[int], position: int) -> Tensor:
    """Logits [8, V]; missing drafts are dead rows."""
    row = torch.tensor([tokens + [0] * (8 - len(tokens))])
    return target.forward(row, torch.tensor([position]), torch.tensor([slot]))[0]


@pytest.mark.parametrize(("dtype", "tolerance", "rows"), [("float32", 2e-4, 16), ("bfloat16", 1.0, 8)])
@pytest.mark.parametrize("prompt", [0, 1, 7, 8, 63, 64, 65, 150])
def test_logits_are_those_of_transformers(
    checkpoint: Path, dtype: str, tolerance: float, rows: int, prompt: int
) -> None:
    """Of two steps. In bfloat16 about half of the rows go to other experts or windows than in float32."""
    tokens = draw(prompt, prompt + 16)
    expected = whole(checkpoint, tokens)[prompt:]
    assert expected.std() > 1
    target = make(checkpoint, dtype)
    prefill(target, 1, tokens[:prompt])
    steps = [step(target, 1, tokens[position:][:8], position) for position in (prompt, prompt + 8)]
    difference = (torch.cat(steps) - expected).abs().amax(-1)
    assert int((difference < tolerance).sum()) >= rows, difference


def test_greedy_decoding_is_that_of_generate(checkpoint: Path) -> None:
    prompt, count, tolerance = draw(4, 50), 90, 2e-4
    model = DeepseekV4ForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    output = model.generate(
        torch.tensor([prompt]),
        max_new_tokens=count,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    tokens: list[int] = output.sequences[0].tolist()
    target = make(checkpoint)
    prefill(target, 0, tokens[:49])
    compared = 0
    for position in range(49, len(tokens) - 1):
        hostile = [tokens[position], *draw(position, 7)]
        logits, theirs = step(target, 0, hostile, position)[0], output.logits[position - 49][0]
        assert torch.allclose(logits, theirs, atol=tolerance)
        best, second = theirs.topk(2).values.tolist()
        if best - second > 2 * tolerance:
            assert int(logits.argmax()) == tokens[position + 1]
            compared += 1
    assert compared > 80


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_way_to_a_position_gives_the_same_bits(checkpoint: Path, dtype: str) -> None:
    """The prompt whole; token by token; a prompt, then steps of one to eight tokens with hostile drafts behind them."""
    tokens = draw(5, 100)
    target = make(checkpoint, dtype, num_slots=1)
    prefill(target, 0, tokens[:90])
    expected = step(target, 0, tokens[90:98], 90)
    for position in range(92):
        logits = step(target, 0, tokens[position : position + 1], position)[0]
    assert torch.equal(logits, expected[1])
    prefill(target, 0, tokens[:37])
    position, kept = 37, 1
    while position < 90:
        step(target, 0, tokens[position : position + kept] + draw(position, 8 - kept), position)
        position, kept = position + kept, min(kept % 8 + 1, 90 - position - kept)
    assert torch.equal(step(target, 0, tokens[90:98], 90), expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_is_invariant(checkpoint: Path, dtype: str) -> None:
    report = row_invariance(make(checkpoint, dtype, num_slots=3, max_model_len=100))
    assert report.passed, report


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_is_invariant_in_long_contexts(tmp_path: Path, dtype: str) -> None:
    checkpoint = save_tiny_deepseek(tmp_path, max_position_embeddings=4096)
    report = row_invariance(make(checkpoint, dtype, num_slots=8, max_model_len=2048))
    assert report.passed, report


def test_a_step_that_goes_back_is_computed_anew(checkpoint: Path) -> None:
    """The engine never does it, but a target has to be right for any caller."""
    tokens = draw(6, 100)
    target = make(checkpoint)
    prefill(target, 0, tokens[:80])
    step(target, 0, tokens[80:88], 80)
    back = step(target, 0, [*tokens[30:34], 1, 2, 3, 4], 30)
    assert torch.allclose(back[:4], whole(checkpoint, tokens[:34])[30:], atol=2e-4)
    with pytest.raises(ValueError, match="position 80: only 38 tokens were written before it"):
        step(target, 0, tokens[80:88], 80)


def test_a_slot_forgets_its_last_sequence(checkpoint: Path) -> None:
    target = make(checkpoint)
    tokens = draw(7, 30)
    prefill(target, 0, draw(8, 5))
    step(target, 0, draw(9, 8), 5)
    prefill(target, 0, tokens[:22])
    assert torch.allclose(step(target, 0, tokens[22:], 22), whole(checkpoint, tokens)[22:], atol=2e-4)


def test_a_fork_leaves_no_trace(checkpoint: Path) -> None:
    """Snapshots are references: were transformers to write into a cached tensor one day, they would be worthless."""
    target = make(checkpoint)
    cache = DynamicCache(config=target._config)
    tokens = draw(10, 400)
    with torch.inference_mode():
        for start in range(0, 200, 8):
            target._run(cache, tokens[start : start + 8], start)
        before = [tensor.clone() for tensor in tensors(cache)]
        assert len(before) > 15
        twin = fork(cache)
        for start in range(200, 400, 8):
            target._run(twin, tokens[start : start + 8], start)
    after = tensors(cache)
    assert all(map(torch.equal, before, after))
    assert [layer.cumulative_length for layer in cache.layers] == [200] * 3
    assert [layer.cumulative_length for layer in twin.layers] == [400] * 3


def tensors(cache: Any) -> list[Tensor]:
    """Everything that the layers of a cache hold."""
    values = [value for layer in cache.layers for value in vars(layer).values()]
    values += [inner for value in values if isinstance(value, dict) for inner in value.values()]
    return [value for value in values if isinstance(value, Tensor)]


def test_wrong_calls_are_refused(checkpoint: Path) -> None:
    target = make(checkpoint, max_model_len=64)
    with pytest.raises(ValueError, match="prefill of 8 tokens at 8: cut the prompt at multiples of 64"):
        target.prefill(slot=0, start=8, token_ids=[1] * 8)
    with pytest.raises(ValueError, match="keep it within max_model_len = 64"):
        target.prefill(slot=0, start=64, token_ids=[1])
    with pytest.raises(ValueError, match=r"positions: must be 0 to 63"):
        step(target, 0, [1], 64)
    with pytest.raises(ValueError, match=r"slots: must be distinct and below 2"):
        step(target, 2, [1], 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "float16"}, r"engine\.dtype: 'float16'; choose bfloat16 or float32"),
        ({"max_model_len": 5000}, r"engine\.max_model_len: 5000 exceeds the checkpoint's 1024"),
        ({"prefill_chunk": 100}, r"engine\.prefill_chunk: 100; choose a multiple of 8"),
    ],
)
def test_wrong_options_are_refused(checkpoint: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ReleaseError, match=message):
        make(checkpoint, **changes)


def test_a_rope_that_looks_at_the_batch_is_refused_in_either_kind_of_layer(tmp_path: Path) -> None:
    config = save_tiny_deepseek(tmp_path) / "config.json"
    written = json.loads(config.read_text())
    written["rope_parameters"]["compress"] |= {"rope_type": "dynamic", "factor": 2.0}
    config.write_text(json.dumps(written))
    with pytest.raises(ReleaseError, match="rope type 'dynamic' depends on the batch"):
        make(tmp_path)


def test_the_target_follows_the_architecture(checkpoint: Path, tmp_path: Path) -> None:
    options = EngineOptions(dtype="float32", max_num_seqs=3, max_model_len=128)
    target = load_target(options, checkpoint)
    assert isinstance(target, DeepSeekV4Target)
    assert (target.num_slots, target.max_model_len, target.vocab_size, target.prefill_chunk) == (3, 128, 323, 64)
    assert isinstance(load_target(options, save_tiny(tmp_path, "qwen3")), TransformersTarget)


def test_an_unknown_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"config\.json names no model_type"):
        load_target(EngineOptions(), tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    known = "model type 'mamba'; on cpu there are targets for deepseek_v4, llama, qwen2, qwen3"
    with pytest.raises(ReleaseError, match=known):
        load_target(EngineOptions(), tmp_path)
