"""A checkpoint run by transformers' own model code, with our cache and attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from heptagram_backend.errors import ReleaseError
from heptagram_backend.release import EngineOptions
from heptagram_backend.targets.attention import NAME, Span, Spans, causal_bias
from heptagram_backend.targets.checks import check_prefill, check_step
from heptagram_backend.targets.fused import fuse_parts
from heptagram_backend.targets.loading import DTYPES, load_config, load_model
from heptagram_backend.targets.packed_linear import can_pack, pack_linears
from heptagram_backend.targets.slot_cache import CacheShape, SlotCache
from heptagram_kernels.layout import ROWS
from heptagram_kernels.workspace import Workspace

MODEL_TYPES: Final = ("llama", "qwen2", "qwen3")


class TransformersTarget:
    """A Llama or Qwen checkpoint over ``num_slots`` cache slots. Implements :class:`targets.base.Target` on CPU.

    Args:
        checkpoint: folder in Hugging Face layout, weights as safetensors.
        dtype: ``bfloat16`` or ``float32``, of weights, cache and logits.
        prefill_chunk: most rows of one prefill forward.
        threads: torch's intra-op threads, a setting of the whole process.
        bucket: a sequence's attention covers a multiple of this many keys.
        workspace: holds the cache; without one the target makes its own.

    Raises:
        ReleaseError: the checkpoint or an option does not fit; the message names it.
    """

    def __init__(
        self,
        checkpoint: Path,
        *,
        dtype: str,
        num_slots: int,
        max_model_len: int,
        prefill_chunk: int = 64,
        threads: int = 1,
        bucket: int = 256,
        workspace: Workspace | None = None,
    ) -> None:
        config = load_config(checkpoint, types=MODEL_TYPES, dtype=dtype, max_model_len=max_model_len)
        _check_layers(config)
        _check_chunk(prefill_chunk, bucket)
        torch.set_num_threads(threads)
        self._model: Any = _load_model(checkpoint, dtype)
        self._dtype = DTYPES[dtype]
        self._vocab_size: int = self._model.lm_head.out_features
        self._num_slots = num_slots
        self._max_model_len = max_model_len
        self._prefill_chunk = prefill_chunk
        self._bucket = bucket
        self._groups: int = config.num_attention_heads // config.num_key_value_heads
        shape = _cache_shape(config, slots=num_slots, length=self._round(max_model_len + ROWS), dtype=self._dtype)
        memory = workspace or Workspace()
        memory.reserve(shape.declarations())
        self._cache = SlotCache(shape, memory)

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

    @torch.inference_mode()
    def prefill(self, *, slot: int, start: int, token_ids: Sequence[int]) -> None:
        """See :meth:`Target.prefill`. Runs a multiple of 8 rows; those behind the tokens are rewritten later."""
        count = len(token_ids)
        check_prefill(self, start=start, count=count)
        rows = -(-count // ROWS) * ROWS
        ids = torch.zeros((1, rows), dtype=torch.int64)
        ids[0, :count] = torch.tensor(token_ids)
        positions = torch.arange(start, start + rows).unsqueeze(0)
        self._hidden(ids, positions, [(slot, start)], rows=rows)

    @torch.inference_mode()
    def forward(self, token_ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
        """See :meth:`Target.forward`."""
        places = list(zip(slots.tolist(), positions.tolist(), strict=True))
        check_step(self, token_ids, places)
        offsets = torch.arange(ROWS)
        hidden = self._hidden(
            token_ids.reshape(1, -1), (positions.unsqueeze(1) + offsets).reshape(1, -1), places, rows=ROWS
        )
        logits: Tensor = self._model.lm_head(hidden[0])
        return logits.view(len(places), ROWS, -1)

    def _hidden(self, ids: Tensor, positions: Tensor, places: Sequence[tuple[int, int]], *, rows: int) -> Tensor:
        """Final hidden states [1, T, hidden] of ``rows`` rows for each (slot, position) in ``places``."""
        spans = Spans(self._cache, tuple(self._spans(places, rows)), self._bucket)
        output = self._model.model(input_ids=ids, position_ids=positions, use_cache=False, spans=spans)
        hidden: Tensor = output.last_hidden_state
        return hidden

    def _spans(self, places: Sequence[tuple[int, int]], rows: int) -> Iterator[Span]:
        for index, (slot, position) in enumerate(places):
            end = position + rows
            keys = self._round(end)
            self._cache.touch(slot, start=position, end=end)
            bias = causal_bias(position=position, rows=rows, keys=keys, groups=self._groups, dtype=self._dtype)
            yield Span(slot, position, index * rows, rows, keys, bias)

    def _round(self, rows: int) -> int:
        return -(-rows // self._bucket) * self._bucket


def load(options: EngineOptions, checkpoint: Path) -> TransformersTarget:
    """The target of a release. Raises what :class:`TransformersTarget` raises."""
    return TransformersTarget(
        checkpoint,
        dtype=options.dtype,
        num_slots=options.max_num_seqs,
        max_model_len=options.max_model_len,
        threads=options.threads,
    )


def _check_layers(config: Any) -> None:
    if set(getattr(config, "layer_types", None) or ()) - {"full_attention"}:
        raise ReleaseError("checkpoint: has sliding-window layers; set use_sliding_window to false in its config.json")


def _check_chunk(prefill_chunk: int, bucket: int) -> None:
    if prefill_chunk < ROWS or prefill_chunk % ROWS or bucket % prefill_chunk:
        raise ReleaseError(
            f"engine.prefill_chunk: {prefill_chunk}; choose a multiple of {ROWS} that divides the bucket of {bucket}"
        )


def _load_model(checkpoint: Path, dtype: str) -> Any:
    model = load_model(checkpoint, dtype=dtype, attn_implementation=NAME)
    if can_pack(DTYPES[dtype]):
        pack_linears(model)
        fuse_parts(model)
    return model


def _cache_shape(config: Any, *, slots: int, length: int, dtype: torch.dtype) -> CacheShape:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return CacheShape(config.num_hidden_layers, slots, config.num_key_value_heads, head_dim, length, dtype)
