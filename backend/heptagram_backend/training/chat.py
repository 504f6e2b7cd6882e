"""What the base model says in ordinary talk, so that it is not forgotten: a source without a licence."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from heptagram_backend.training.encode import Encoder
from heptagram_backend.training.example import Example
from heptagram_backend.training.prompts import chat_prompts

_BATCH: Final = 16


def chat_examples(
    path: Path, model: Any, encoder: Encoder, report: Callable[[str], object], *, max_tokens: int = 24
) -> list[Example]:
    """The base model's greedy answers to ``chat_prompts()``: read from ``path``, or made and written there."""
    if not path.exists():
        examples = [Example("chat", request) for request in chat_prompts()]
        lines = []
        for start in range(0, len(examples), _BATCH):
            report(f"the base model answers {start} of {len(examples)} ordinary prompts")
            batch = examples[start : start + _BATCH]
            for example, (text, whole) in zip(batch, _answers(batch, model, encoder, max_tokens), strict=True):
                lines.append(json.dumps({"request": example.request, "text": text, "whole": whole}))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    read = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Example("chat", each["request"], each["text"], whole=each["whole"]) for each in read if each["text"]]


@torch.no_grad()
def _answers(batch: Sequence[Example], model: Any, encoder: Encoder, max_tokens: int) -> list[tuple[str, bool]]:
    """Each answer, and whether it came to its end."""
    eos = encoder.tokenizer.eos_ids[0]
    prompts = [encoder.prompt(example) for example in batch]
    width = max(map(len, prompts))
    ids = torch.tensor([[eos] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    made = model.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=max_tokens, do_sample=False, pad_token_id=eos
    )
    pieces = encoder.tokenizer.token_bytes()
    answers = []
    for row in made[:, width:].tolist():
        whole = eos in row
        said = row[: row.index(eos)] if whole else row
        text = b"".join(pieces[token] or b"" for token in said).decode(errors="ignore")
        answers.append((text, whole))
    return answers
