"""A whole K7 step with the operations for Ascend: gather, a decoder layer over a paged cache, verify, draft, advance.

The layer is the tests' own, small and with random weights; everything else is what a served step runs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from heptagram_kernels import npu_ops
from heptagram_kernels.buffers import K7Buffers
from heptagram_kernels.devices import Device, load_device
from heptagram_kernels.layout import CANDIDATES, ROWS, Bindings
from heptagram_kernels.npu_attention import Attention, MaskedAttention
from heptagram_kernels.npu_verify import verify_sampled
from heptagram_kernels.ops import Ops
from heptagram_kernels.step import gather, settle
from heptagram_kernels.workspace import Workspace

V, SLOTS, BATCH = 70, 3, 2
HEADS, KEY_HEADS, WIDTH = 4, 2, 16
HIDDEN, RANK = 32, 8
BLOCK, ENTRIES = 16, 4
CONTEXT = BLOCK * ENTRIES
NPU: Device = replace(load_device("cpu"), name="npu", ops=Ops(npu_ops), verify_sampled=verify_sampled)
"""The Ascend device without its graph, and without torch_npu."""


class WholeStep:
    """All that a step owns, on one device; a call runs the step with the operations of ``operations``."""

    def __init__(
        self,
        device: str,
        dtype: torch.dtype,
        attention: Attention,
        *,
        operations: Device = NPU,
    ) -> None:
        torch.manual_seed(1)

        def weight(*shape: int) -> Tensor:
            return (torch.rand(shape, device=device) - 0.5).to(dtype)

        self._ops, self._operations = operations.ops, operations

        workspace = Workspace("step", device=device)
        workspace.reserve(K7Buffers.declarations(Bindings(batch=BATCH, vocab_size=V, pool_rows=4, slots=SLOTS)))
        self.buffers = K7Buffers.take(workspace)
        self.buffers.mask_pool.fill_(-1)
        self.block_tables = torch.arange((SLOTS + 1) * ENTRIES, device=device).view(SLOTS + 1, ENTRIES)
        blocks = self.block_tables.numel()
        self.keys, self.values = (
            torch.zeros((blocks * BLOCK, KEY_HEADS * WIDTH), dtype=dtype, device=device) for _ in range(2)
        )
        self._attention = attention
        self._embedding = weight(V, HIDDEN)
        self._query, self._key, self._value = (weight(HIDDEN, heads * WIDTH) for heads in (HEADS, KEY_HEADS, KEY_HEADS))
        self._out, self._gate, self._up, self._down = (
            weight(*shape) for shape in ((HEADS * WIDTH, HIDDEN), (HIDDEN, 64), (HIDDEN, 64), (64, HIDDEN))
        )
        self._w1, self._w2 = weight(V, RANK), weight(V, RANK)
        self._confidence, self._bias = weight(HIDDEN + RANK).float(), weight(1).float()
        self._scores = torch.zeros((BATCH, V), dtype=torch.float32, device=device)
        self._candidate_logits = torch.zeros((BATCH, CANDIDATES), dtype=torch.float32, device=device)

    def __call__(self) -> Tensor:
        gather(self.buffers)
        hidden = self._forward()
        draft = partial(self._draft, hidden[:, 0])
        logits = hidden @ self._embedding.T
        return settle(self.buffers, logits, device=self._operations, real_tokens=V, draft=draft)

    def _forward(self) -> Tensor:
        buffers = self.buffers
        hidden = self._embedding[buffers.token_ids]
        normed = rms_norm(hidden, (HIDDEN,))
        for cache, weight in ((self.keys, self._key), (self.values, self._value)):
            self._write(cache, normed @ weight)
        mixed = self._attention(
            query=(normed @ self._query).view(BATCH, ROWS, HEADS, WIDTH),
            keys=self.keys,
            values=self.values,
            block_tables=self.block_tables,
            slots=buffers.slots,
            positions=buffers.positions,
        )
        hidden = hidden + mixed.flatten(2) @ self._out
        normed = rms_norm(hidden, (HIDDEN,))
        return hidden + (silu(normed @ self._gate) * (normed @ self._up)) @ self._down

    def _write(self, cache: Tensor, rows: Tensor) -> None:
        self._ops.kv_write(
            cache=cache,
            rows=rows,
            block_tables=self.block_tables,
            slots=self.buffers.slots,
            positions=self.buffers.positions,
            block_size=BLOCK,
        )

    def _draft(self, hidden: Tensor, buffers: K7Buffers, anchors: Tensor) -> None:
        """A Markov head's chain, with its candidates and confidences."""
        previous, base = anchors.clamp(min=0), hidden @ self._embedding.T
        pool, no_mask = buffers.mask_pool, torch.zeros_like(previous)
        for draft in range(ROWS - 1):
            self._ops.markov_logits(base=base, previous=previous, w1=self._w1, w2=self._w2, out=self._scores)
            self._ops.top_candidates(
                logits=self._scores,
                mask_pool=pool,
                mask_rows=no_mask,
                real_tokens=V,
                out_ids=buffers.candidates[:, draft],
                out_logits=self._candidate_logits,
            )
            self._ops.draft_confidence(
                hidden=hidden,
                previous=previous,
                w1=self._w1,
                weight=self._confidence,
                bias=self._bias,
                out=buffers.confidences[:, draft],
            )
            self._ops.masked_argmax(
                logits=self._scores,
                mask_pool=pool,
                mask_rows=no_mask,
                real_tokens=V,
                out=buffers.next_drafts[:, draft],
            )
            previous = buffers.next_drafts[:, draft]
        buffers.next_counts.fill_(ROWS - 1)


def masked_attention() -> MaskedAttention:
    return MaskedAttention(context=CONTEXT, block_size=BLOCK, key_heads=KEY_HEADS)


def begin(step: WholeStep) -> None:
    """Two sequences at positions 3 and 20, under way."""
    buffers = step.buffers
    buffers.slots.copy_(torch.tensor([0, 1]))
    buffers.guards.copy_(torch.tensor([5, 6]))
    buffers.state_generations[:2] = torch.tensor([5, 6])
    buffers.state_positions[:2] = torch.tensor([3, 20])
    buffers.state_draft_limits[:2] = 30
    buffers.state_max_drafts[:2] = 7
    buffers.state_tokens[:2, 0] = torch.tensor([9, 11])
