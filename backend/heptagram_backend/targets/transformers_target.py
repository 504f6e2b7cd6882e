"""A checkpoint run by transformers' own model code, with our cache and attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from heptagram_backend.errors import EngineError, ReleaseError
from heptagram_backend.release import EngineOptions
from heptagram_backend.targets.attention import NAME, Span, Spans, causal_bias
from heptagram_backend.targets.base import Paging, PromptRows
from heptagram_backend.targets.checks import check_rows, check_step
from heptagram_backend.targets.fused import fuse_parts
from heptagram_backend.targets.loading import DTYPES, load_config
from heptagram_backend.targets.packed_linear import can_pack, pack_linears
from heptagram_backend.targets.paged_cache import CacheShape, PagedCache
from heptagram_backend.targets.quantized import quantize_linears
from heptagram_backend.targets.quantized_checkpoint import load_quantizable
from heptagram_backend.targets.taps import HiddenSink, HiddenTaps, NoTaps, Taps
from heptagram_kernels.layout import ROWS
from heptagram_kernels.workspace import Workspace

MODEL_TYPES: Final = ("llama", "qwen2", "qwen3")


class TransformersTarget:
    """A Llama or Qwen checkpoint over a paged cache. Implements :class:`targets.base.PagedTarget` on CPU.

    Args:
        checkpoint: folder in Hugging Face layout, weights as safetensors.
        dtype: ``bfloat16`` or ``float32``, of weights, cache and logits.
        quantization: of the linear layers: ``none``, ``int8``, ``int4``; None: as the checkpoint is.
        prefill_chunk: most rows of one prompt in a forward.
        threads: torch's intra-op threads, a setting of the whole process.
        tile: a sequence's attention covers a multiple of this many keys.
        blocks: of ``block_size`` rows; by default as many as ``num_slots`` sequences of ``max_model_len`` need.
        memory: bytes of the cache, in place of ``blocks``.
        workspace: holds the cache; without one the target makes its own.

    Raises:
        ReleaseError: the checkpoint or an option does not fit; the message names it.
    """

    def __init__(
        self,
        checkpoint: Path,
        *,
        dtype: str,
        quantization: str | None = None,
        num_slots: int,
        max_model_len: int,
        prefill_chunk: int = 64,
        threads: int = 1,
        tile: int = 256,
        block_size: int = 32,
        blocks: int | None = None,
        memory: int | None = None,
        workspace: Workspace | None = None,
    ) -> None:
        config = load_config(checkpoint, types=MODEL_TYPES, dtype=dtype, max_model_len=max_model_len)
        _check_layers(config)
        _check_sizes(prefill_chunk=prefill_chunk, block_size=block_size, tile=tile)
        torch.set_num_threads(threads)
        self._model: Any = _load_model(checkpoint, dtype, quantization)
        self._dtype = DTYPES[dtype]
        self._vocab_size: int = self._model.lm_head.out_features
        self._num_slots = num_slots
        self._max_model_len = max_model_len
        self._prefill_chunk = prefill_chunk
        self._groups: int = config.num_attention_heads // config.num_key_value_heads
        shape = CacheShape(
            layers=config.num_hidden_layers,
            heads=config.num_key_value_heads,
            head_dim=_head_dim(config),
            dtype=self._dtype,
            block_size=block_size,
            slots=num_slots,
            table=-(-(max_model_len + ROWS) // block_size),
            tile=tile,
        ).sized(blocks=blocks, memory=memory)
        self._workspace = workspace or Workspace("target")
        self._workspace.reserve(shape.declarations())
        self._cache = PagedCache(shape, self._workspace)
        self._taps: Taps = NoTaps()
        self._paging = Paging(
            shape.blocks, block_size, self._steps_write_what_prompts_write(), keys_per_row=_keys_per_row(config)
        )

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def num_slots(self) -> int:
        return self._num_slots

    @property
    def max_model_len(self) -> int:
        return self._max_model_len

    @property
    def prefill_chunk(self) -> int:
        return self._prefill_chunk

    @property
    def paging(self) -> Paging:
        return self._paging

    @property
    def workspace(self) -> Workspace:
        return self._workspace

    @property
    def cache_rows(self) -> int:
        return self._cache.shape.rows

    def rows_held(self, slot: int) -> int:
        return self._cache.rows_of(slot)

    def rows(self, slot: int, start: int, count: int) -> Tensor:
        """See :meth:`HiddenSource.rows`."""
        return self._cache.rows(slot, position=start, rows=count)

    def tap(self, layers: Sequence[int], sink: HiddenSink) -> None:
        """See :meth:`HiddenSource.tap`."""
        self._taps = HiddenTaps(self._model.model, layers, sink)

    def set_blocks(self, slot: int, blocks: Sequence[int]) -> None:
        """See :meth:`PagedTarget.set_blocks`."""
        self._cache.set_blocks(slot, blocks)

    def prefill(self, *, slot: int, start: int, token_ids: Sequence[int]) -> None:
        """See :meth:`Target.prefill`."""
        self._compute(torch.zeros((0, ROWS), dtype=torch.int64), [], [PromptRows(slot, start, token_ids)])

    def forward(self, token_ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
        """See :meth:`Target.forward`."""
        return self.mixed(token_ids, positions, slots, ())

    def mixed(self, token_ids: Tensor, positions: Tensor, slots: Tensor, prompts: Sequence[PromptRows]) -> Tensor:
        """See :meth:`PagedTarget.mixed`."""
        places = list(zip(slots.tolist(), positions.tolist(), strict=True))
        check_step(self, token_ids, places)
        return self._compute(token_ids, places, prompts)

    @torch.inference_mode()
    def _compute(self, token_ids: Tensor, places: Sequence[tuple[int, int]], prompts: Sequence[PromptRows]) -> Tensor:
        """Logits [B, 8, V] of the steps at (slot, position). Prompts run a multiple of 8 rows, rewritten later."""
        for prompt in prompts:
            check_rows(self, start=prompt.start, count=len(prompt.token_ids))
        spans = [*((slot, position, ROWS) for slot, position in places), *map(_padded, prompts)]
        ids = torch.cat([token_ids.reshape(-1), *(_ids(prompt) for prompt in prompts)])
        positions = torch.cat([torch.arange(position, position + rows) for _, position, rows in spans])
        output = self._model.model(
            input_ids=ids.unsqueeze(0),
            position_ids=positions.unsqueeze(0),
            use_cache=False,
            spans=Spans(self._cache, tuple(self._spans(spans))),
        )
        self._taps.tell(spans)
        hidden: Tensor = output.last_hidden_state[0]
        steps = len(places) * ROWS
        _check_numbers(hidden[steps:], prompts)
        logits: Tensor = self._model.lm_head(hidden[:steps]) if steps else hidden.new_empty((0, self._vocab_size))
        return logits.view(len(places), ROWS, self._vocab_size)

    def _spans(self, places: Sequence[tuple[int, int, int]]) -> Iterator[Span]:
        first = 0
        for slot, position, rows in places:
            tiles = -(-(position + rows) // self._cache.shape.tile)
            keys = tiles * self._cache.shape.tile
            bias = causal_bias(position=position, rows=rows, keys=keys, groups=self._groups, dtype=self._dtype)
            writes = self._cache.writes(slot, position=position, rows=rows)
            yield Span(first, rows, writes, self._cache.pieces(slot, tiles), bias)
            first += rows

    def _steps_write_what_prompts_write(self) -> bool:
        """The same tokens as a prompt and in steps, around the end of a tile: the last layer's rows are equal.

        They depend on the rows of all other layers.
        """
        rows = min(self._cache.shape.tile + ROWS, self._max_model_len // ROWS * ROWS)
        steps = range(max(0, rows - 3 * ROWS), rows, ROWS)
        tokens = [(7 * place + 11) % self._vocab_size for place in range(rows)]
        self._cache.set_blocks(0, range(self._cache.shape.table))
        for start in range(0, rows, self._prefill_chunk):
            self.prefill(slot=0, start=start, token_ids=tokens[start : start + self._prefill_chunk])
        written = [part.clone() for part in self._cache.layer(self._cache.shape.layers - 1)]
        for start in steps:
            row = torch.tensor([tokens[start : start + ROWS]])
            self.forward(row, torch.tensor([start]), torch.tensor([0]))
        again = self._cache.layer(self._cache.shape.layers - 1)
        return all(torch.equal(one, other) for one, other in zip(written, again, strict=True))


def load(options: EngineOptions, checkpoint: Path) -> TransformersTarget:
    """The target of a release. Raises what :class:`TransformersTarget` raises."""
    return TransformersTarget(
        checkpoint,
        dtype=options.dtype,
        quantization=options.quantization,
        num_slots=options.max_num_seqs,
        max_model_len=options.max_model_len,
        prefill_chunk=options.batched_tokens,
        threads=options.threads,
        block_size=options.block_size,
        blocks=options.kv_cache_blocks,
        memory=options.kv_cache_memory,
    )


def _check_layers(config: Any) -> None:
    if set(getattr(config, "layer_types", None) or ()) - {"full_attention"}:
        raise ReleaseError("checkpoint: has sliding-window layers; set use_sliding_window to false in its config.json")


def _check_sizes(*, prefill_chunk: int, block_size: int, tile: int) -> None:
    if prefill_chunk < ROWS or prefill_chunk % ROWS:
        raise ReleaseError(f"engine.max_num_batched_tokens: {prefill_chunk}; choose a multiple of {ROWS}")
    if block_size % ROWS or not block_size or tile % block_size:
        raise ReleaseError(
            f"engine.block_size: {block_size}; choose a multiple of {ROWS} that divides the {tile} keys of a tile"
        )


def _padded(prompt: PromptRows) -> tuple[int, int, int]:
    return prompt.slot, prompt.start, -(-len(prompt.token_ids) // ROWS) * ROWS


def _ids(prompt: PromptRows) -> Tensor:
    return torch.tensor([*prompt.token_ids, *[0] * (-len(prompt.token_ids) % ROWS)])


def _check_numbers(hidden: Tensor, prompts: Sequence[PromptRows]) -> None:
    """An overflow anywhere in a prompt reaches the last hidden state of its row."""
    first = 0
    for prompt in prompts:
        if not hidden[first : first + len(prompt.token_ids)].isfinite().all():
            raise EngineError("the model computed no usable numbers for this prompt")
        first += _padded(prompt)[2]


def _load_model(checkpoint: Path, dtype: str, quantization: str | None) -> Any:
    model, quantization, stored = load_quantizable(
        checkpoint, dtype=dtype, quantization=quantization, attn_implementation=NAME
    )
    if quantization != "none":
        quantize_linears(model, quantization, stored)
    if can_pack(DTYPES[dtype]):
        pack_linears(model)
        fuse_parts(model)
    return model


def _keys_per_row(config: Any) -> int:
    """By the multiplications of one layer; those of attention were seen to take three times as long (SmolLM2, CPU)."""
    heads, kv_heads, width = config.num_attention_heads, config.num_key_value_heads, config.hidden_size
    linear = width * (2 * (heads + kv_heads) * _head_dim(config) + 3 * config.intermediate_size)
    attended = 2 * heads * _head_dim(config)
    return int(max(1, linear // (3 * attended)))


def _head_dim(config: Any) -> int:
    head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return head_dim
