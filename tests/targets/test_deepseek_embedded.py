"""The embedded tiny DeepSeek V4: the real windows (128 tokens, 4 and 128 to an entry) and the real vocabulary."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from transformers import DeepseekV4ForCausalLM

from heptagram_backend.checkpoint import resolve
from heptagram_backend.formats.deepseek_v4 import DeepSeekV4
from heptagram_backend.targets.deepseek_v4 import DeepSeekV4Target
from heptagram_backend.targets.invariance import row_invariance
from heptagram_backend.tokenizer import CheckpointTokenizer


@cache
def checkpoint() -> Path:
    return resolve("embedded:tiny-deepseek-v4")


@pytest.mark.server
def test_it_is_what_transformers_computes() -> None:
    """Over a prompt that leaves the window, closes entries of both kinds and has more than the indexer takes."""
    tokens: list[int] = torch.randint(129_280, (400,), generator=torch.Generator().manual_seed(0)).tolist()
    model = DeepseekV4ForCausalLM.from_pretrained(checkpoint(), dtype=torch.float32)
    with torch.inference_mode():
        expected = model(torch.tensor([tokens]), use_cache=False).logits[0, 384:392]
    target = DeepSeekV4Target(checkpoint(), dtype="float32", num_slots=1, max_model_len=512)
    for start in range(0, 384, 64):
        target.prefill(slot=0, start=start, token_ids=tokens[start : start + 64])
    logits = target.forward(torch.tensor([tokens[384:392]]), torch.tensor([384]), torch.tensor([0]))[0]
    assert torch.allclose(logits, expected, atol=1e-3)


@pytest.mark.server
def test_tokenizer_and_weights_belong_together() -> None:
    tokenizer = CheckpointTokenizer(checkpoint())
    DeepSeekV4().check(tokenizer)
    target = DeepSeekV4Target(checkpoint(), dtype="float32", num_slots=1, max_model_len=64)
    assert tokenizer.size == target.vocab_size == 129_280
    assert tokenizer.eos_ids == (tokenizer.token_id("<｜end▁of▁sentence｜>"),)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_is_invariant(dtype: str) -> None:
    report = row_invariance(DeepSeekV4Target(checkpoint(), dtype=dtype, num_slots=4, max_model_len=536))
    assert report.passed, report
