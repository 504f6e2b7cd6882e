"""Planning, masking and verification of one step at the width of DeepSeek's vocabulary, beside the usual way.

Ours: a constrained row is filled, found in the mask pool by its content, and chosen on the packed words; an ordinary
row points at row 0. The usual way fills a row for every row of the batch, copies the whole tensor to where the sampler
reads it, has XGrammar's CPU kernel write -inf into the logits, and takes torch's argmax. Both walk the same matchers.
Every round is the same step, so our pool holds its masks: bytes are those of a step whose masks were seen before.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import torch
import xgrammar
from torch import Tensor

from benchmarks.steps import Suite
from benchmarks.table import table
from benchmarks.turns import Run, in_turn
from heptagram_backend.masks import MaskPool, all_tokens_row, words_for
from heptagram_kernels.layout import ROWS
from heptagram_kernels.ops import load_ops

WIDTH: Final = 129_280
_SCHEMA: Final = """
{"type": "object", "required": ["city", "unit", "days"], "additionalProperties": false, "properties":
{"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}, "days": {"type": "integer"}}}"""
_ANSWER: Final = '{"city": "Paris", "unit": "celsius", "days": 3}'
_SHARES: Final = {"all constrained": 1, "one in eight": 8}


@dataclass(slots=True)
class Step:
    """The arguments of one step; every ``every``-th request is constrained and drafts its own part of an answer."""

    batch: int
    every: int
    matchers: list[Any]
    tokens: list[int]
    logits: Tensor = field(init=False)  # [B * 8, V]
    token_ids: Tensor = field(init=False)  # [B, 8]

    def __post_init__(self) -> None:
        random = torch.Generator().manual_seed(0)
        self.logits = torch.randn(self.batch * ROWS, WIDTH, generator=random).bfloat16()
        self.token_ids = torch.zeros((self.batch, ROWS), dtype=torch.int64)

    def constrained(self) -> range:
        return range(0, self.batch, self.every)

    def drafts(self, request: int) -> list[int]:
        start = request % (len(self.tokens) - ROWS + 1)
        return self.tokens[start : start + ROWS - 1]

    def walk(self, request: int, rows: Tensor) -> None:
        """Fill int32 [8, W] along the request's drafts, and go back."""
        matcher = self.matchers[request // self.every]
        drafts = self.drafts(request)
        matcher.fill_next_token_bitmask(rows, 0)
        for row, token in enumerate(drafts, start=1):
            assert matcher.accept_token(token)
            matcher.fill_next_token_bitmask(rows, row)
        matcher.rollback(len(drafts))


class Ours:
    def __init__(self, step: Step, real_tokens: int) -> None:
        self._step, self._real = step, real_tokens
        rows = step.batch * ROWS
        self._pool = torch.zeros((max(256, rows + 1), words_for(WIDTH)), dtype=torch.int32)
        self._pool[0] = torch.from_numpy(all_tokens_row(real_tokens, WIDTH))
        self._words = self._pool.numpy()
        self._places = MaskPool(rows=len(self._pool), rows_per_step=rows, write=self._write)
        self._filled = torch.zeros((ROWS, words_for(WIDTH)), dtype=torch.int32)
        self._rows = torch.zeros(rows, dtype=torch.int64)
        self._ops = load_ops("cpu")
        self.chosen = torch.zeros((step.batch, ROWS), dtype=torch.int64)
        self._out = [torch.zeros_like(self.chosen), *(torch.zeros(step.batch, dtype=torch.int64) for _ in range(2))]
        self._drafts = torch.full((step.batch,), ROWS - 1)
        self._room, self._stops = torch.full((step.batch,), 999), torch.tensor([1])
        self.bytes = 0

    def run(self) -> Run:
        start, before = time.perf_counter(), self.bytes
        for request in self._step.constrained():
            self._step.walk(request, self._filled)
            for row, words in enumerate(self._filled.numpy()):
                self._rows[request * ROWS + row] = self._places.place(words).row
        planned = time.perf_counter()
        self._ops.masked_argmax(
            logits=self._step.logits,
            mask_pool=self._pool,
            mask_rows=self._rows,
            real_tokens=self._real,
            out=self.chosen.view(-1),
        )
        tokens, counts, finished = self._out
        self._ops.verify_chain(
            chosen=self.chosen,
            token_ids=self._step.token_ids,
            draft_counts=self._drafts,
            room=self._room,
            stop_ids=self._stops,
            out_tokens=tokens,
            out_counts=counts,
            out_finished=finished,
        )
        return _run(start, planned, self.bytes - before)

    def _write(self, index: int, row: np.ndarray[Any, np.dtype[np.int32]]) -> None:
        self._words[index] = row
        self.bytes += row.nbytes


class Usual:
    def __init__(self, step: Step, real_tokens: int) -> None:
        self._step = step
        self._host = torch.zeros((step.batch * ROWS, words_for(WIDTH)), dtype=torch.int32)
        self._uploaded = torch.zeros_like(self._host)
        self._ordinary = torch.from_numpy(all_tokens_row(real_tokens, WIDTH))
        self._logits = step.logits.clone()  # the kernel writes it; what it writes is the same each time
        self.chosen = torch.zeros((step.batch, ROWS), dtype=torch.int64)

    def run(self) -> Run:
        start = time.perf_counter()
        constrained = set(self._step.constrained())
        for request in range(self._step.batch):
            rows = self._host[request * ROWS : (request + 1) * ROWS]
            if request in constrained:
                self._step.walk(request, rows)
            else:
                rows.copy_(self._ordinary.expand_as(rows))
        self._uploaded.copy_(self._host)
        planned = time.perf_counter()
        xgrammar.apply_token_bitmask_inplace(self._logits, self._uploaded)
        self.chosen = self._logits.argmax(dim=-1).view(-1, ROWS)
        (self.chosen[:, :-1] == self._step.token_ids[:, 1:]).long().cumprod(dim=1).sum(dim=1).tolist()
        return _run(start, planned, self._host.nbytes)


def step_against_the_usual_way(batches: Sequence[int], rounds: int) -> Suite:
    """Medians by batch and share of constrained requests."""
    from tests.formats.deepseek.grammar import token_bytes

    pieces = list(token_bytes())
    info = xgrammar.TokenizerInfo(
        [piece or b"" for piece in pieces], vocab_type=xgrammar.VocabType.RAW, vocab_size=WIDTH, stop_token_ids=[1]
    )
    grammar = xgrammar.GrammarCompiler(info).compile_json_schema(_SCHEMA, any_whitespace=False)
    tokens = _tokens(pieces)
    rows: list[list[Any]] = []
    data: dict[str, Any] = {}
    for batch in batches:
        for share, every in _SHARES.items():
            step = Step(batch, every, [], tokens)
            step.matchers = [_started(grammar, step, request) for request in step.constrained()]
            ours, usual = Ours(step, len(pieces)), Usual(step, len(pieces))
            turns = in_turn({"ours": partial(ours.run), "usual": partial(usual.run)}, rounds)
            assert torch.equal(ours.chosen, usual.chosen), "both ways choose the same tokens"
            name, ratio = f"{batch} requests, {share}", turns.ratio("usual", "ours", "ms")
            for arm, faster in (("ours", f"{ratio:.1f}x"), ("usual", "")):
                numbers = [turns.median(arm, key) for key in ("ms", "plan_ms", "verify_ms", "bytes")]
                rows.append([name, arm, *numbers, faster])
            data[name] = {"faster": ratio, "runs": turns.json()}
    header = ("step", "way", "ms", "planning ms", "masking and verification ms", "mask bytes", "faster")
    return Suite("Masks and verification of a step", table(header, rows), data)


def _started(grammar: Any, step: Step, request: int) -> Any:
    matcher = xgrammar.GrammarMatcher(grammar, max_rollback_tokens=ROWS)
    drafts = step.drafts(request)
    for token in step.tokens[: request % (len(step.tokens) - ROWS + 1)]:
        assert matcher.accept_token(token)
    step.token_ids[request, 1:] = torch.tensor(drafts)
    return matcher


def _tokens(pieces: Sequence[bytes | None]) -> list[int]:
    """The answer in the longest pieces that fit, from the left."""
    ids = {piece: token for token, piece in enumerate(pieces) if piece}
    rest, tokens = _ANSWER.encode(), []
    while rest:
        size = next(size for size in range(min(len(rest), 12), 0, -1) if rest[:size] in ids)
        tokens.append(ids[rest[:size]])
        rest = rest[size:]
    return tokens


def _run(start: float, planned: float, sent: int) -> Run:
    end = time.perf_counter()
    return {
        "ms": 1e3 * (end - start),
        "plan_ms": 1e3 * (planned - start),
        "verify_ms": 1e3 * (end - planned),
        "bytes": float(sent),
    }
