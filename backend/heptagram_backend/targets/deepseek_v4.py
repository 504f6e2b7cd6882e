"""A DeepSeek V4 checkpoint run by transformers' own model code and cache: for correctness, not for speed.

Its caches forget what slides out of the window and fold tokens into compressed entries, so a rejected draft cannot be
cut off again (``crop`` raises, or is silently wrong). Sequences therefore go back to a snapshot, see
:mod:`heptagram_backend.targets.replay`, and run one after the other, so that company changes no shape either.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from transformers import DynamicCache

from heptagram_backend.errors import ReleaseError
from heptagram_backend.release import EngineOptions
from heptagram_backend.targets.checks import check_prefill, check_step
from heptagram_backend.targets.loading import DTYPES, load_config, load_model
from heptagram_backend.targets.packed_linear import PackedLinear, can_pack
from heptagram_backend.targets.replay import ReplayedSequence
from heptagram_kernels.layout import ROWS

MODEL_TYPES: Final = ("deepseek_v4",)


class DeepSeekV4Target:
    """``num_slots`` sequences, each with a cache of its own. Implements :class:`targets.base.Target` on CPU.

    Args:
        checkpoint: folder in Hugging Face layout, weights as safetensors.
        dtype: ``bfloat16`` or ``float32``, of weights, cache and logits.
        prefill_chunk: most tokens of one prefill, a multiple of 8; they run eight at a time.
        threads: torch's intra-op threads, a setting of the whole process.

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
    ) -> None:
        self._config = load_config(checkpoint, types=MODEL_TYPES, dtype=dtype, max_model_len=max_model_len)
        if prefill_chunk < ROWS or prefill_chunk % ROWS:
            raise ReleaseError(f"engine.prefill_chunk: {prefill_chunk}; choose a multiple of {ROWS}")
        torch.set_num_threads(threads)
        # subtle: "eager" experts multiply the rows of each expert together, so a draft that is routed to the same
        # expert would change the shape, and with it the rounding, of a row before it.
        self._model = load_model(
            checkpoint, dtype=dtype, attn_implementation="eager", experts_implementation="batched_mm"
        )
        self._vocab_size: int = self._model.lm_head.out_features
        if can_pack(DTYPES[dtype]):
            self._model.lm_head = PackedLinear(self._model.lm_head)
        self._max_model_len = max_model_len
        self._prefill_chunk = prefill_chunk
        self._slots = [ReplayedSequence(self._run, self._fresh) for _ in range(num_slots)]
        self._check_cache()

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def num_slots(self) -> int:
        return len(self._slots)

    @property
    def max_model_len(self) -> int:
        return self._max_model_len

    @property
    def prefill_chunk(self) -> int:
        return self._prefill_chunk

    @torch.inference_mode()
    def prefill(self, *, slot: int, start: int, token_ids: Sequence[int]) -> None:
        """See :meth:`Target.prefill`. Tokens of a block that is not full yet run with the first step."""
        check_prefill(self, start=start, count=len(token_ids))
        sequence = self._slots[slot]
        sequence.write(start, token_ids)
        sequence.settle(start + len(token_ids))

    @torch.inference_mode()
    def forward(self, token_ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
        """See :meth:`Target.forward`."""
        places = list(zip(slots.tolist(), positions.tolist(), strict=True))
        check_step(self, token_ids, places)
        logits = [
            self._model.lm_head(self._slots[slot].step(position, tokens))
            for (slot, position), tokens in zip(places, token_ids.tolist(), strict=True)
        ]
        return torch.stack(logits)

    def _run(self, cache: Any, tokens: list[int], position: int) -> Tensor:
        """See :data:`heptagram_backend.targets.replay.Run`."""
        ids = torch.tensor([tokens])
        positions = torch.arange(position, position + ROWS).unsqueeze(0)
        output = self._model.model(input_ids=ids, position_ids=positions, cache=cache, use_cache=True)
        hidden: Tensor = output.last_hidden_state[0]
        return hidden

    def _fresh(self) -> Any:
        return DynamicCache(config=self._config)

    @torch.inference_mode()
    def _check_cache(self) -> None:
        """A transformers that takes the cache by another name would silently compute without one."""
        cache = self._fresh()
        self._run(cache, [0] * ROWS, 0)
        if cache.get_seq_length() != ROWS:
            raise ReleaseError(
                "checkpoint: deepseek_v4 needs transformers 5.24 or newer; pip install 'transformers>=5.24'"
            )


def load(options: EngineOptions, checkpoint: Path) -> DeepSeekV4Target:
    """The target of a release. Raises what :class:`DeepSeekV4Target` raises."""
    if options.quantization not in (None, "none"):
        raise ReleaseError(
            f"engine.quantization: {options.quantization}; the deepseek_v4 target has plain weights only: set none"
        )
    return DeepSeekV4Target(
        checkpoint,
        dtype=options.dtype,
        num_slots=options.max_num_seqs,
        max_model_len=options.max_model_len,
        threads=options.threads,
    )
