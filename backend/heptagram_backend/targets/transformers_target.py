"""A transformers checkpoint run by our decoder: which ones it takes, and the two forwards that the engine asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from heptagram_backend.errors import ReleaseError
from heptagram_backend.release import EngineOptions
from heptagram_backend.targets.attention import Span, Spans, causal_bias
from heptagram_backend.targets.decoder import Decoder
from heptagram_backend.targets.decoder_config import DecoderConfig
from heptagram_backend.targets.slot_cache import CacheShape, SlotCache
from heptagram_kernels.layout import ROWS
from heptagram_kernels.workspace import Workspace

DTYPES: Final = {"bfloat16": torch.bfloat16, "float32": torch.float32}


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
        config = DecoderConfig.read(checkpoint)
        _check_options(config, dtype=dtype, max_model_len=max_model_len, prefill_chunk=prefill_chunk, bucket=bucket)
        torch.set_num_threads(threads)
        self._decoder = Decoder(config, checkpoint, DTYPES[dtype])
        self._num_slots = num_slots
        self._max_model_len = max_model_len
        self._prefill_chunk = prefill_chunk
        self._bucket = bucket
        self._biases: dict[int, Tensor] = {}
        cache = _cache_shape(self._decoder, slots=num_slots, length=self._round(max_model_len + ROWS))
        memory = workspace or Workspace()
        memory.reserve(cache.declarations())
        self._cache = SlotCache(cache, memory)

    @property
    def vocab_size(self) -> int:
        return self._decoder.config.vocab

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
        ids = torch.zeros(rows, dtype=torch.int64)
        ids[:count] = torch.tensor(token_ids)
        self._hidden(ids, torch.arange(start, start + rows), [(slot, start)], rows=rows)

    @torch.inference_mode()
    def forward(self, token_ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
        """See :meth:`Target.forward`."""
        places = list(zip(slots.tolist(), positions.tolist(), strict=True))
        self._check_step(token_ids, places)
        rows = positions.unsqueeze(1) + torch.arange(ROWS)
        hidden = self._hidden(token_ids.flatten(), rows.flatten(), places, rows=ROWS)
        return self._decoder.logits(hidden).view(len(places), ROWS, -1)

    def _hidden(self, ids: Tensor, positions: Tensor, places: Sequence[tuple[int, int]], *, rows: int) -> Tensor:
        """Final hidden states [T, hidden] of ``rows`` rows for each (slot, position) in ``places``."""
        return self._decoder.hidden(ids, positions, Spans(self._cache, tuple(self._spans(places, rows)), self._bucket))

    def _spans(self, places: Sequence[tuple[int, int]], rows: int) -> Iterator[Span]:
        bias = self._bias(rows)
        for index, (slot, position) in enumerate(places):
            end = position + rows
            keys = self._round(end)
            self._cache.touch(slot, start=position, end=end)
            yield Span(slot, position, index * rows, rows, keys, bias[:, :, : keys - position])

    def _bias(self, rows: int) -> Tensor:
        """The longest mask tail of a span of so many rows; made once."""
        if rows not in self._biases:
            group, dtype = self._decoder.config.group, self._decoder.dtype
            self._biases[rows] = causal_bias(rows=rows, keys=rows + self._bucket, group=group, dtype=dtype)
        return self._biases[rows]

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


def _check_options(config: DecoderConfig, *, dtype: str, max_model_len: int, prefill_chunk: int, bucket: int) -> None:
    if dtype not in DTYPES:
        raise ReleaseError(f"engine.dtype: {dtype!r}; choose {' or '.join(DTYPES)}")
    if max_model_len > config.positions:
        raise ReleaseError(
            f"engine.max_model_len: {max_model_len} exceeds the checkpoint's {config.positions} positions"
        )
    if prefill_chunk < ROWS or prefill_chunk % ROWS or bucket % prefill_chunk:
        raise ReleaseError(
            f"engine.prefill_chunk: {prefill_chunk}; choose a multiple of {ROWS} that divides the bucket of {bucket}"
        )


def _cache_shape(decoder: Decoder, *, slots: int, length: int) -> CacheShape:
    config = decoder.config
    return CacheShape(config.layers, slots, config.kv_heads, config.head_dim, length, decoder.dtype)
