"""Our cache and attention under transformers' model code, against transformers alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from heptagram_backend.errors import EngineError, ReleaseError
from heptagram_backend.release import EngineOptions
from heptagram_backend.targets import load_target
from heptagram_backend.targets.base import PagedTarget, Paging, PromptRows
from heptagram_backend.targets.transformers_target import TransformersTarget
from heptagram_kernels.workspace import Workspace
from tests.targets.tiny import FAMILIES, save_tiny


@pytest.fixture(scope="module", params=FAMILIES)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny") / request.param, request.param)


def make(checkpoint: Path, dtype: str = "float32", **changes: Any) -> TransformersTarget:
    options: dict[str, Any] = {"dtype": dtype, "num_slots": 2, "max_model_len": 600}
    return TransformersTarget(checkpoint, **(options | changes))


def whole(checkpoint: Path, tokens: list[int]) -> Tensor:
    """Logits [len(tokens), V] of transformers itself, without a cache."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="eager")
    with torch.inference_mode():
        logits: Tensor = model(torch.tensor([tokens]), use_cache=False).logits[0]
    return logits


def draw(seed: int, length: int) -> list[int]:
    tokens: list[int] = torch.randint(323, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
    return tokens


def prefill(target: TransformersTarget, slot: int, tokens: list[int]) -> None:
    for start in range(0, len(tokens), target.prefill_chunk):
        target.prefill(slot=slot, start=start, token_ids=tokens[start : start + target.prefill_chunk])


def step(target: TransformersTarget, slot: int, tokens: list[int], position: int) -> Tensor:
    """Logits [8, V]; missing drafts are dead rows."""
    row = torch.tensor([tokens + [0] * (8 - len(tokens))])
    return target.forward(row, torch.tensor([position]), torch.tensor([slot]))[0]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.6)])
@pytest.mark.parametrize("prompt", [0, 1, 63, 64, 65, 250, 577])
def test_logits_are_those_of_transformers(checkpoint: Path, dtype: str, tolerance: float, prompt: int) -> None:
    tokens = draw(prompt, prompt + 16)
    expected = whole(checkpoint, tokens)
    target = make(checkpoint, dtype)
    prefill(target, 1, tokens[:prompt])
    for position in (prompt, prompt + 8):
        logits = step(target, 1, tokens[position : position + 8], position).float()
        assert torch.allclose(logits, expected[position : position + 8], atol=tolerance), prompt


def test_rejected_rows_are_rewritten(checkpoint: Path) -> None:
    """Each step keeps three of its eight rows; the other five are rewritten by the next one."""
    tokens = draw(1, 60)
    expected = whole(checkpoint, tokens)
    target = make(checkpoint)
    for position in range(0, 50, 3):
        rejected = draw(position, 5)
        logits = step(target, 0, tokens[position : position + 3] + rejected, position)
        assert torch.allclose(logits[:3], expected[position : position + 3], atol=1e-4)


def test_every_position_up_to_the_last(checkpoint: Path) -> None:
    target = make(checkpoint, max_model_len=256)
    tokens = draw(2, 256)
    prefill(target, 0, tokens[:-1])
    assert torch.allclose(step(target, 0, tokens[-1:], 255)[0], whole(checkpoint, tokens)[-1], atol=1e-4)
    with pytest.raises(ValueError, match=r"positions: must be 0 to 255"):
        step(target, 0, tokens[-1:], 256)
    with pytest.raises(ValueError, match="keep it within max_model_len = 256"):
        target.prefill(slot=0, start=256, token_ids=[1])


def test_an_overflow_is_noticed_and_spoils_nobody_else(checkpoint: Path) -> None:
    """0 x NaN is NaN: masked rows of a spoiled block must reach neither its neighbour nor who has it next."""
    target = make(checkpoint, blocks=38)
    tokens = draw(3, 40)
    target.set_blocks(0, [3, 4])
    prefill(target, 0, tokens[:30])
    clean = step(target, 0, tokens[30:38], 30).clone()
    weight = target._model.model.embed_tokens.weight
    target.set_blocks(1, [5, 6, 7])  # the tile of slot 0 ends in these
    with torch.inference_mode():
        saved = weight[7].clone()
        weight[7] = float("nan")
        with pytest.raises(EngineError, match="no usable numbers for this prompt"):
            prefill(target, 1, [7] * 60)
        ids = torch.tensor([tokens[30:38], [7] * 8])
        both = target.forward(ids, torch.tensor([30, 60]), torch.tensor([0, 1])).clone()
        weight[7] = saved
    assert torch.equal(both[0], clean)
    assert both[1].isnan().all()
    target.set_blocks(0, [5, 6])
    prefill(target, 0, tokens[:30])
    assert torch.equal(step(target, 0, tokens[30:38], 30), clean)


def test_the_cache_lies_in_the_callers_workspace(checkpoint: Path) -> None:
    workspace = Workspace("target")
    make(checkpoint, workspace=workspace, max_model_len=256)
    # 2 layers x keys and values x 2 heads x (2 slots x 9 blocks x 32 rows, and a tile) x 16 numbers of 4 bytes.
    tables = 2 * 9 * 8
    assert workspace.nbytes == tables + 2 * 2 * 2 * (2 * 9 * 32 + 256) * 16 * 4


@pytest.mark.parametrize("bad", [[38], [-1], list(range(20))])
def test_blocks_that_are_not_there_are_refused_before_the_slot_changes(checkpoint: Path, bad: list[int]) -> None:
    target = make(checkpoint, blocks=38)
    tokens = draw(3, 40)
    target.set_blocks(0, [3, 4])
    prefill(target, 0, tokens[:30])
    table = target.workspace.take("target.block_tables").clone()
    clean = step(target, 0, tokens[30:38], 30).clone()
    with pytest.raises(ValueError, match="slot 0: blocks"):
        target.set_blocks(0, bad)
    assert torch.equal(target.workspace.take("target.block_tables"), table)
    assert torch.equal(step(target, 0, tokens[30:38], 30), clean)


def test_a_step_without_room_is_refused_before_a_row_is_written(checkpoint: Path) -> None:
    target = make(checkpoint, blocks=38)
    target.set_blocks(0, [3])
    target.set_blocks(1, [5, 6])
    names = [f"target.{part}.{layer}" for layer in range(2) for part in ("keys", "values")]
    before = [target.workspace.take(name).clone() for name in names]
    with pytest.raises(ValueError, match="slot 0: rows up to 38 in blocks of 32 rows"):
        target.forward(torch.zeros((2, 8), dtype=torch.int64), torch.tensor([0, 30]), torch.tensor([1, 0]))
    assert all(torch.equal(target.workspace.take(name), kept) for name, kept in zip(names, before, strict=True))


TABLES = {
    "in a row": list(range(10, 29)),
    "backwards": list(range(28, 9, -1)),
    "a break in the first tile": [30, 31, 32, *range(2, 18)],
    "a break between tiles": [*range(30, 38), *range(2, 13)],
    "no two together": [(7 * place) % 38 for place in range(19)],
    "at the end of the cache": list(range(19, 38)),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_where_the_blocks_lie_and_how_a_prompt_is_cut_changes_no_bit(checkpoint: Path, dtype: str) -> None:
    tokens = draw(4, 560)
    target = make(checkpoint, dtype, blocks=38, prefill_chunk=256)
    expected = None
    for place, blocks in enumerate(TABLES.values()):
        target.set_blocks(1, blocks)
        size = (256, 8, 64, 136, 40, 200)[place]
        for start in range(0, 536, size):
            target.prefill(slot=1, start=start, token_ids=tokens[start : min(536, start + size)])
        # The second step crosses a block, the third one a tile of keys would, at 512 + 8 * 3.
        logits = torch.stack([step(target, 1, tokens[at : at + 8], at) for at in (501, 509, 536)])
        expected = logits if expected is None else expected
        assert torch.equal(logits, expected), list(TABLES)[place]


def test_prompts_and_steps_share_a_forward_without_a_trace(checkpoint: Path) -> None:
    tokens, other = draw(5, 300), draw(6, 300)
    target = make(checkpoint, "bfloat16", num_slots=3, prefill_chunk=256)
    prefill(target, 0, tokens[:70])
    alone = step(target, 0, tokens[70:78], 70).clone()
    prefill(target, 1, other[:200])
    later = step(target, 1, other[200:208], 200).clone()
    for slot, size in ((1, 64), (2, 104)):
        for start in range(0, 200, size):
            rows = PromptRows(slot, start, other[start : min(200, start + size)])
            mixed = target.mixed(torch.tensor([tokens[70:78]]), torch.tensor([70]), torch.tensor([0]), [rows])
            assert torch.equal(mixed[0], alone)
        assert torch.equal(step(target, slot, other[200:208], 200), later)


def test_steps_are_known_to_write_what_prompts_write(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make(checkpoint).paging.decoded
    forward = TransformersTarget.forward

    def wrong(self: TransformersTarget, token_ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
        return forward(self, token_ids + (positions > 240), positions, slots)

    monkeypatch.setattr(TransformersTarget, "forward", wrong)
    assert not make(checkpoint).paging.decoded


def test_rows_without_blocks_are_refused(checkpoint: Path) -> None:
    target = make(checkpoint, blocks=20)
    target.set_blocks(1, [3, 4])
    with pytest.raises(ValueError, match="slot 1: rows up to 65 in blocks of 64 rows"):
        step(target, 1, [1], 57)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ((torch.zeros(2, 8, dtype=torch.int64), torch.zeros(1), torch.zeros(1)), r"token_ids: got \[2, 8\]"),
        ((torch.zeros(2, 8, dtype=torch.int64), torch.zeros(2), torch.zeros(2)), "slots: must be distinct"),
        ((torch.zeros(1, 8, dtype=torch.int64), torch.zeros(1), torch.full((1,), 2)), "slots: .* below 2"),
    ],
)
def test_wrong_steps_are_refused(checkpoint: Path, place: tuple[Tensor, Tensor, Tensor], message: str) -> None:
    tokens, positions, slots = place
    with pytest.raises(ValueError, match=message):
        make(checkpoint).forward(tokens, positions.long(), slots.long())


def test_load_target_follows_the_release(checkpoint: Path) -> None:
    options = EngineOptions(dtype="float32", max_num_seqs=3, max_model_len=128, block_size=16, kv_cache_blocks=11)
    target = load_target(options, checkpoint)
    assert isinstance(target, PagedTarget)
    assert (target.num_slots, target.max_model_len, target.vocab_size, target.prefill_chunk) == (3, 128, 323, 88)
    # Of a layer 64 x (192 + 288) numbers; one key costs 2 x 64, three times over.
    assert target.paging == Paging(11, 16, decoded=True, keys_per_row=80)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "float16"}, r"engine\.dtype: 'float16'; choose bfloat16 or float32"),
        ({"max_model_len": 5000}, r"engine\.max_model_len: 5000 exceeds the checkpoint's 1024"),
        ({"prefill_chunk": 100}, r"engine\.max_num_batched_tokens: 100"),
        ({"block_size": 24}, r"engine\.block_size: 24; choose a multiple of 8 that divides the 256"),
        ({"blocks": 18}, r"engine\.kv_cache_blocks: 18 blocks cannot hold one sequence .* needs 19 of 16384 bytes"),
        ({"memory": 19 * 16384 - 1}, r"engine\.kv_cache_memory: 18 blocks cannot hold one sequence"),
    ],
)
def test_wrong_options_are_refused(checkpoint: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ReleaseError, match=message):
        make(checkpoint, **changes)


def test_an_unknown_device_is_refused(checkpoint: Path) -> None:
    with pytest.raises(ReleaseError, match=r"engine\.device: 'tpu'; targets run on cpu"):
        load_target(EngineOptions(device="tpu"), checkpoint)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("qwen3", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1}, "sliding-window layers"),
        ("qwen3", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0}, "sliding-window layers"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "rope type 'dyna"),
    ],
)
def test_checkpoints_that_break_the_promise_are_refused(
    tmp_path: Path, family: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ReleaseError, match=message):
        make(save_tiny(tmp_path, family, **changes))


def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="is no checkpoint that transformers reads"):
        make(tmp_path)
    weights = save_tiny(tmp_path, "llama") / "model.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)
    with pytest.raises(ReleaseError, match="its weights cannot be loaded"):
        make(tmp_path)
    weights.unlink()
    with pytest.raises(ReleaseError, match="its weights cannot be loaded"):
        make(tmp_path)
