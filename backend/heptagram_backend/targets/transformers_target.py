"""A checkpoint run by transformers' own model code, with our cache and attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from heptagram_backend.errors import ReleaseError
from heptagram_backend.release import EngineOptions
from heptagram_backend.targets.attention import NAME, Span, Spans, causal_bias
from heptagram_backend.targets.fused import fuse_parts
from heptagram_backend.targets.packed_linear import can_pack, pack_linears
from heptagram_backend.targets.slot_cache import CacheShape, SlotCache
from heptagram_kernels.layout import ROWS
from heptagram_kernels.workspace import Workspace

DTYPES: Final = {"bfloat16": torch.bfloat16, "float32": torch.float32}
MODEL_TYPES: Final = ("llama", "qwen2", "qwen3")
# These rotary embeddings change with the longest position in the batch, so company would change an answer.
_COMPANY_DEPENDENT_ROPE: Final = ("dynamic", "longrope")


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
        config = _load_config(checkpoint)
        _check_options(config, dtype=dtype, max_model_len=max_model_len, prefill_chunk=prefill_chunk, bucket=bucket)
        torch.set_num_threads(threads)
        self._model: Any = _load_model(checkpoint, DTYPES[dtype])
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
        chunk, count = self._prefill_chunk, len(token_ids)
        if start % chunk or not 0 < count <= chunk or start + count > self._max_model_len:
            raise ValueError(
                f"prefill of {count} tokens at {start}: cut the prompt at multiples of {chunk} "
                f"and keep it within max_model_len = {self._max_model_len}"
            )
        rows = -(-count // ROWS) * ROWS
        ids = torch.zeros((1, rows), dtype=torch.int64)
        ids[0, :count] = torch.tensor(token_ids)
        positions = torch.arange(start, start + rows).unsqueeze(0)
        self._hidden(ids, positions, [(slot, start)], rows=rows)

    @torch.inference_mode()
    def forward(self, token_ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
        """See :meth:`Target.forward`."""
        places = list(zip(slots.tolist(), positions.tolist(), strict=True))
        self._check_step(token_ids, places)
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

    def _check_step(self, token_ids: Tensor, places: Sequence[tuple[int, int]]) -> None:
        if token_ids.shape != (len(places), ROWS):
            raise ValueError(f"token_ids: got {list(token_ids.shape)}, need [{len(places)}, {ROWS}]")
        slots = {slot for slot, _ in places}
        if len(slots) != len(places) or not slots <= set(range(self._num_slots)):
            raise ValueError(f"slots: must be distinct and below {self._num_slots}")
        if any(not 0 <= position < self._max_model_len for _, position in places):
            raise ValueError(f"positions: must be 0 to {self._max_model_len - 1} (max_model_len - 1)")


def load(options: EngineOptions, checkpoint: Path) -> TransformersTarget:
    """The target of a release. Raises what :class:`TransformersTarget` raises."""
    return TransformersTarget(
        checkpoint,
        dtype=options.dtype,
        num_slots=options.max_num_seqs,
        max_model_len=options.max_model_len,
        threads=options.threads,
    )


def _load_config(checkpoint: Path) -> Any:
    try:
        config = AutoConfig.from_pretrained(checkpoint, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ReleaseError(f"checkpoint: {checkpoint} is no checkpoint that transformers reads ({error})") from error
    if config.model_type not in MODEL_TYPES:
        raise ReleaseError(f"checkpoint: model type {config.model_type!r}; this runner takes {', '.join(MODEL_TYPES)}")
    if set(getattr(config, "layer_types", None) or ()) > {"full_attention"}:
        raise ReleaseError("checkpoint: has sliding-window layers; set use_sliding_window to false in its config.json")
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope in _COMPANY_DEPENDENT_ROPE:
        raise ReleaseError(f"checkpoint: rope type {rope!r} depends on the batch; use default, linear, yarn or llama3")
    return config


def _check_options(config: Any, *, dtype: str, max_model_len: int, prefill_chunk: int, bucket: int) -> None:
    if dtype not in DTYPES:
        raise ReleaseError(f"engine.dtype: {dtype!r}; choose {' or '.join(DTYPES)}")
    if max_model_len > config.max_position_embeddings:
        raise ReleaseError(
            f"engine.max_model_len: {max_model_len} exceeds the checkpoint's {config.max_position_embeddings} positions"
        )
    if prefill_chunk < ROWS or prefill_chunk % ROWS or bucket % prefill_chunk:
        raise ReleaseError(
            f"engine.prefill_chunk: {prefill_chunk}; choose a multiple of {ROWS} that divides the bucket of {bucket}"
        )


def _load_model(checkpoint: Path, dtype: torch.dtype) -> Any:
    try:
        model = AutoModelForCausalLM.from_pretrained(
            checkpoint, dtype=dtype, attn_implementation=NAME, local_files_only=True, use_safetensors=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ReleaseError(f"checkpoint: {checkpoint}: its weights cannot be loaded ({error})") from error
    model.eval().requires_grad_(False)
    if can_pack(dtype):
        pack_linears(model)
        fuse_parts(model)
    return model


def _cache_shape(config: Any, *, slots: int, length: int, dtype: torch.dtype) -> CacheShape:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return CacheShape(config.num_hidden_layers, slots, config.num_key_value_heads, head_dim, length, dtype)
