"""What a sampled row is drawn from, and what every device's ``verify_sampled`` and ``token_logprobs`` take.

The order is vLLM's: mask, ``logit_bias``, penalties, temperature, min-p, top-k, top-p, draw. The draw is Gumbel-max
(Maddison, Tarlow and Minka, "A* Sampling", 2014): with independent Gumbel noise ``g``, ``argmax(log p + g)`` has the
distribution ``p`` exactly. The noise is a pure function of (seed, position, token), see :mod:`heptagram_kernels.noise`,
so a position gives the same token whichever row, step or batch draws it, and a draft is accepted when it equals the
token drawn. A seed's output is then the same with and without speculation.

A ``probabilistic`` sequence is verified by rejection sampling instead (Leviathan et al., "Fast Inference from
Transformers via Speculative Decoding", 2023; Chen et al., "Accelerating Large Language Model Decoding with Speculative
Sampling", 2023). Drafts come without probabilities, as of a drafter that is sure of them: ``x`` is accepted with the
probability ``p(x)``, and what replaces it is drawn from the rest of ``p``. The noise of ``x`` decides on ``x``, that of
the other tokens on its replacement, so both are independent. The distribution is ``p`` again, but a seed's output
depends on the drafts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sampling:
    """How S sequences of a batch draw. Numbers of each sequence have the shape [S].

    History and biases are ragged: those of sequence ``s`` are the entries from ``ends[s - 1]`` (0 for the first) to
    ``ends[s]``, each token at most once. The history holds all tokens so far, the prompt's with a count of 0 unless
    they were generated as well; the drafts before a row are counted by the operation.
    """

    sequences: Tensor  # int64 [S], places in the batch, each at most once
    positions: Tensor  # int64 [S], position of the token that row 0 draws; row r draws that of positions + r
    seeds: Tensor  # int64 [S]
    temperature: Tensor  # float64 [S], 0: the argmax after bias and penalties
    top_k: Tensor  # int64 [S], 0: off; of equals the lowest ids are kept
    top_p: Tensor  # float64 [S], above 0; 1: off
    min_p: Tensor  # float64 [S], 0: off
    repetition: Tensor  # float64 [S], above 0; 1: off
    presence: Tensor  # float64 [S]
    frequency: Tensor  # float64 [S]
    history_ids: Tensor  # int64 [N]
    history_counts: Tensor  # int64 [N], how often each was generated
    history_ends: Tensor  # int64 [S]
    probabilistic: Tensor  # bool [S], rejection sampling
    bias_ids: Tensor  # int64 [M]
    biases: Tensor  # float64 [M], added to the logits
    bias_ends: Tensor  # int64 [S]


class VerifySampled(Protocol):
    """Draw the live rows of the sequences in ``sampling``, up to the first one that rejects a draft.

    Other sequences of the batch are left alone, and those that it draws need no argmax before.

    Args:
        logits, token_ids, draft_counts, mask_pool, mask_rows: as of :class:`heptagram_kernels.bitmask.VerifyGreedy`.
        sampling: which sequences, and how.
        out_verified: int64 [B, 8], written: the draft accepted or the token drawn; -1 where none can be (nothing is
            allowed, an allowed logit is NaN, or the largest is not finite); 0 in rows behind that which ends the step,
            and in dead rows.
        out_accepted: int64 [B], written: accepted drafts, 0 to ``draft_counts``.

    Raises:
        ValueError: a dtype, shape or value does not fit; the message names the argument.
    """

    def __call__(
        self,
        *,
        logits: Tensor,
        token_ids: Tensor,
        draft_counts: Tensor,
        mask_pool: Tensor,
        mask_rows: Tensor,
        sampling: Sampling,
        out_verified: Tensor,
        out_accepted: Tensor,
    ) -> None: ...


class TokenLogprobs(Protocol):
    """Log probabilities of tokens under their rows' masked, otherwise unprocessed logits (vLLM's ``raw_logprobs``).

    Args:
        logits: [B, 8, V], bfloat16 or float32.
        mask_pool: int32 [P, W]. mask_rows: int64 [B, 8].
        places: int64 [N, 2], sequence and row of each token.
        tokens: int64 [N].
        out_chosen: float64 [N], written; -inf for a token that is not allowed.
        out_ids: int64 [N, T], written: the T likeliest tokens, best first, of equals the lowest id first; -1 where
            fewer are allowed.
        out_logprobs: float64 [N, T], written: theirs; -inf where fewer are allowed.

    Raises:
        ValueError: a dtype, shape or value does not fit; the message names the argument.
    """

    def __call__(
        self,
        *,
        logits: Tensor,
        mask_pool: Tensor,
        mask_rows: Tensor,
        places: Tensor,
        tokens: Tensor,
        out_chosen: Tensor,
        out_ids: Tensor,
        out_logprobs: Tensor,
    ) -> None: ...


_WHOLE = (
    "sequences",
    "positions",
    "seeds",
    "top_k",
    "history_ids",
    "history_counts",
    "history_ends",
    "bias_ids",
    "bias_ends",
)
_DTYPES = {**dict.fromkeys(_WHOLE, torch.int64), "probabilistic": torch.bool}  # the others are float64
_RAGGED = {"history_ids": "history", "history_counts": "history", "bias_ids": "bias", "biases": "bias"}


def check_sampling(sampling: Sampling, *, logits: Tensor) -> None:
    """Check dtypes, shapes and devices; no values are read.

    Raises:
        ValueError: naming the first argument that does not fit.
    """
    count = sampling.sequences.numel()
    sizes = {"history": sampling.history_ids.numel(), "bias": sampling.bias_ids.numel()}
    for spec in fields(sampling):
        size = sizes[_RAGGED[spec.name]] if spec.name in _RAGGED else count
        dtype = _DTYPES.get(spec.name, torch.float64)
        _fits(spec.name, getattr(sampling, spec.name), dtype, (size,), logits.device)


def check_sampling_values(sampling: Sampling, *, batch: int, vocab_size: int) -> None:
    """Check the host-written values. Cheap on the CPU; a device would have to wait for them.

    Raises:
        ValueError: naming the argument and its range.
    """
    places = sampling.sequences.tolist()
    if len(set(places)) != len(places) or not all(0 <= place < batch for place in places):
        raise ValueError(f"sequences: holds {places}; every value must be 0 to {batch - 1}, and none twice")
    for name, low in (("temperature", 0), ("top_k", 0), ("min_p", 0), ("history_counts", 0)):
        _bounded(name, getattr(sampling, name), low, None)
    for name in ("top_p", "repetition"):
        if not bool((getattr(sampling, name) > 0).all()):
            raise ValueError(f"{name}: holds {getattr(sampling, name).tolist()}; every value must be above 0")
    for kind in ("history", "bias"):
        _bounded(f"{kind}_ids", getattr(sampling, f"{kind}_ids"), 0, vocab_size)
        ends, size = getattr(sampling, f"{kind}_ends").tolist(), getattr(sampling, f"{kind}_ids").numel()
        if ends != sorted(ends) or (ends[-1] if ends else 0) != size or (ends and ends[0] < 0):
            raise ValueError(f"{kind}_ends: holds {ends}; must rise from 0 on and end at the {size} entries")


def check_logprobs(
    *,
    logits: Tensor,
    mask_pool: Tensor,
    mask_rows: Tensor,
    places: Tensor,
    tokens: Tensor,
    out_chosen: Tensor,
    out_ids: Tensor,
    out_logprobs: Tensor,
) -> None:
    """Check the arguments of ``token_logprobs``, the values of ``places`` and ``tokens`` included.

    Raises:
        ValueError: naming the first argument that does not fit.
    """
    count, top = tokens.numel(), out_ids.shape[-1]
    wanted: Mapping[str, tuple[Tensor, torch.dtype, tuple[int, ...]]] = {
        "places": (places, torch.int64, (count, 2)),
        "tokens": (tokens, torch.int64, (count,)),
        "out_chosen": (out_chosen, torch.float64, (count,)),
        "out_ids": (out_ids, torch.int64, (count, top)),
        "out_logprobs": (out_logprobs, torch.float64, (count, top)),
        "mask_pool": (mask_pool, torch.int32, (mask_pool.shape[0], -(-logits.shape[-1] // 32))),
        "mask_rows": (mask_rows, torch.int64, tuple(logits.shape[:2])),
    }
    for name, (tensor, dtype, shape) in wanted.items():
        _fits(name, tensor, dtype, shape, logits.device)
    _bounded("tokens", tokens, 0, logits.shape[-1])
    _bounded("places[:, 0]", places[:, 0], 0, logits.shape[0])
    _bounded("places[:, 1]", places[:, 1], 0, logits.shape[1])


def _fits(name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device) -> None:
    if tensor.dtype != dtype or tensor.shape != shape or tensor.device != device:
        got = f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"
        raise ValueError(f"{name}: got {got}, need {dtype} {list(shape)} on {device}")


def _bounded(name: str, tensor: Tensor, low: int, end: int | None) -> None:
    if tensor.numel() and not (bool((tensor >= low).all()) and (end is None or bool((tensor < end).all()))):
        top = "on" if end is None else f"to {end - 1}"
        raise ValueError(f"{name}: holds {tensor.tolist()}; every value must be from {low} {top}")
