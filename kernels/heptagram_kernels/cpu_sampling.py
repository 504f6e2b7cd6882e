"""Sampling on the CPU, in numpy: only the allowed tokens of a row are touched, and only rows that can be committed.

All numbers are float64. A row's result depends on that row alone, so a batch cannot change it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heptagram_kernels.bitmask import NO_TOKEN, allowed_ids, check_arguments, check_values
from heptagram_kernels.noise import gumbel, stream, uniforms
from heptagram_kernels.sampling import Sampling, check_logprobs, check_sampling, check_sampling_values

Ids = NDArray[np.int64]
Numbers = NDArray[np.float64]

_SLACK: Final = 1e-4  # more than a float32 logarithm of these numbers can be off
# Fields of _Draw that are numbers, and their arguments.
_COLUMNS: Final = {"place": "sequences", "position": "positions", "seed": "seeds"} | {
    name: name for name in ("temperature", "top_k", "top_p", "min_p", "repetition", "presence", "frequency")
}
_BINS_PER_NAT: Final = 16
_BINS: Final = 1024


@dataclass(frozen=True, slots=True)
class _Draw:
    """One sequence of a :class:`Sampling`, as plain numbers."""

    place: int
    position: int
    seed: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition: float
    presence: float
    frequency: float
    history: Ids
    counts: Ids
    bias_ids: Ids
    biases: Numbers

    @property
    def penalizes(self) -> bool:
        return self.repetition != 1 or self.presence != 0 or self.frequency != 0


def verify_sampled(
    *,
    logits: Tensor,
    token_ids: Tensor,
    draft_counts: Tensor,
    mask_pool: Tensor,
    mask_rows: Tensor,
    sampling: Sampling,
    out_verified: Tensor,
    out_accepted: Tensor,
) -> None:
    """See :class:`heptagram_kernels.sampling.VerifySampled`."""
    check_arguments(
        logits=logits,
        token_ids=token_ids,
        draft_counts=draft_counts,
        mask_pool=mask_pool,
        mask_rows=mask_rows,
        out_verified=out_verified,
        out_accepted=out_accepted,
    )
    check_values(draft_counts=draft_counts, mask_pool=mask_pool, mask_rows=mask_rows)
    check_sampling(sampling, logits=logits)
    check_sampling_values(sampling, batch=logits.shape[0], vocab_size=logits.shape[2])
    pool, verified = mask_pool.numpy(), out_verified.numpy()
    for draw in _draws(sampling):
        place, drafts = draw.place, int(draft_counts[draw.place])
        tokens, rows = token_ids[place].tolist(), mask_rows[place].tolist()
        verified[place] = 0
        for row in range(drafts + 1):
            ids, scores = allowed_logits(logits[place, row], pool[rows[row]])
            token = _draw(draw, ids, scores, drafts=tokens[1 : row + 1])
            verified[place, row] = token
            if row == drafts or token != tokens[row + 1]:
                out_accepted[place] = row
                break


def token_logprobs(
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
    """See :class:`heptagram_kernels.sampling.TokenLogprobs`."""
    check_logprobs(
        logits=logits,
        mask_pool=mask_pool,
        mask_rows=mask_rows,
        places=places,
        tokens=tokens,
        out_chosen=out_chosen,
        out_ids=out_ids,
        out_logprobs=out_logprobs,
    )
    chosen, top_ids, top_logprobs = out_chosen.numpy(), out_ids.numpy(), out_logprobs.numpy()
    chosen.fill(-math.inf)
    top_ids.fill(NO_TOKEN)
    top_logprobs.fill(-math.inf)
    pool, rows = mask_pool.numpy(), mask_rows.tolist()
    for index, ((place, row), token) in enumerate(zip(places.tolist(), tokens.tolist(), strict=True)):
        ids, numbers = allowed_logits(logits[place, row], pool[rows[place][row]])
        if not ids.size:
            continue
        numbers -= numbers.max()
        numbers -= math.log(float(np.exp(numbers).sum()))
        _, at = _find(ids, np.array([token]))
        chosen[index] = numbers[at[0]] if at.size else -math.inf
        best = _largest(numbers, min(top_ids.shape[1], ids.size))
        best = best[np.argsort(-numbers[best], kind="stable")]
        top_ids[index, : best.size] = ids[best]
        top_logprobs[index, : best.size] = numbers[best]


def allowed_logits(row: Tensor, words: NDArray[np.int32]) -> tuple[Ids, Numbers]:
    """Ids of the allowed tokens, ascending, and their logits, of a row [V] under packed ``words`` [W]."""
    ids = allowed_ids(words, row.numel())
    row = row.detach()
    if row.dtype != torch.bfloat16:
        return ids, row.numpy()[ids].astype(np.float64)
    bits: NDArray[Any] = row.view(torch.int16).numpy()[ids]
    return ids, (bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def _draws(sampling: Sampling) -> Iterator[_Draw]:
    columns = {name: getattr(sampling, argument).tolist() for name, argument in _COLUMNS.items()}
    history, counts = sampling.history_ids.numpy(), sampling.history_counts.numpy()
    bias_ids, biases = sampling.bias_ids.numpy(), sampling.biases.numpy()
    seen = bias = 0
    ends = zip(sampling.history_ends.tolist(), sampling.bias_ends.tolist(), strict=True)
    for index, (seen_end, bias_end) in enumerate(ends):
        yield _Draw(
            **{name: column[index] for name, column in columns.items()},
            history=history[seen:seen_end],
            counts=counts[seen:seen_end],
            bias_ids=bias_ids[bias:bias_end],
            biases=biases[bias:bias_end],
        )
        seen, bias = seen_end, bias_end


def _draw(draw: _Draw, ids: Ids, logits: Numbers, *, drafts: Sequence[int]) -> int:
    """The token of one row that follows ``drafts``; ``logits`` are the caller's to give away."""
    if not ids.size:
        return NO_TOKEN
    _edit(draw, ids, logits, drafts)
    top = logits.max()
    if not math.isfinite(top):
        return NO_TOKEN
    if draw.temperature == 0:
        return int(ids[logits.argmax()])
    logits -= top  # subtle: first, or a tiny temperature makes infinities of which the difference is no number
    with np.errstate(over="ignore"):
        logits /= draw.temperature
    ids, scores = _truncate(draw, ids, logits)
    return int(ids[_gumbel_argmax(scores, uniforms(stream(draw.seed, draw.position + len(drafts)), ids))])


def _edit(draw: _Draw, ids: Ids, logits: Numbers, drafts: Sequence[int]) -> None:
    """Bias and penalties, in place."""
    if draw.bias_ids.size:
        here, at = _find(ids, draw.bias_ids)
        logits[at] += draw.biases[here]
    if draw.penalizes:
        seen, counts = draw.history, draw.counts
        if drafts:
            seen, inverse = np.unique(np.concatenate([seen, np.array(drafts)]), return_inverse=True)
            weights = np.concatenate([counts, np.ones(len(drafts), dtype=np.int64)])
            counts = np.bincount(inverse, weights=weights).astype(np.int64)
        here, at = _find(ids, seen)
        values, counts = logits[at], counts[here]
        values = np.where(values > 0, values / draw.repetition, values * draw.repetition)
        logits[at] = values - draw.frequency * counts - draw.presence * (counts > 0)


def _find(ids: Ids, tokens: Ids) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which of ``tokens`` are among the ascending ``ids``, and where these lie in ``ids``."""
    at = np.minimum(np.searchsorted(ids, tokens), ids.size - 1)
    here = np.flatnonzero(ids[at] == tokens)
    return here, at[here]


def _truncate(draw: _Draw, ids: Ids, scores: Numbers) -> tuple[Ids, Numbers]:
    """What min-p, top-k and top-p leave; the largest score is 0."""
    if draw.min_p > 0:
        kept = np.flatnonzero(scores >= math.log(draw.min_p))
        ids, scores = ids[kept], scores[kept]
    if 0 < draw.top_k < ids.size:
        kept = _largest(scores, draw.top_k)
        ids, scores = ids[kept], scores[kept]
    if draw.top_p < 1:
        kept = _nucleus(scores, draw.top_p)
        ids, scores = ids[kept], scores[kept]
    return ids, scores


def _largest(scores: Numbers, count: int) -> NDArray[np.intp]:
    """Ascending places of the ``count`` largest; of equals the first."""
    if count == 0:
        return np.empty(0, dtype=np.intp)
    threshold = np.partition(scores, scores.size - count)[scores.size - count]
    keep = scores > threshold
    keep[np.flatnonzero(scores == threshold)[: count - int(keep.sum())]] = True
    return np.flatnonzero(keep)


def _nucleus(scores: Numbers, top_p: float) -> NDArray[np.intp]:
    """Ascending places of the fewest largest whose probability is at least ``top_p``.

    A sort of the whole row would cost ten times the rest of the draw. The scores are counted into bins, and only the
    bin in which the probability is reached is sorted.
    """
    weights = np.exp(scores)
    bins = np.minimum(scores * -_BINS_PER_NAT, _BINS - 1).astype(np.intp)
    mass = np.cumsum(np.bincount(bins, weights=weights, minlength=_BINS))
    wanted = top_p * mass[-1]
    last = int(np.searchsorted(mass, wanted))
    edge = np.flatnonzero(bins == last)
    edge = edge[np.argsort(-scores[edge], kind="stable")]
    reached = (mass[last - 1] if last else 0) + np.cumsum(weights[edge])
    edge = edge[: int(np.searchsorted(reached, wanted)) + 1]
    return np.sort(np.concatenate([np.flatnonzero(bins < last), edge]))


def _gumbel_argmax(scores: Numbers, uniform: Numbers) -> int:
    """Place of the largest ``scores + gumbel(uniform)``; of equals the first.

    Two logarithms of every token would cost most of a draw. ``-log(-log1p(-u)) <= -log(u)``, so one of low precision
    bounds each sum from above, and only those that the bound leaves in the race are computed.
    """
    bounds = scores - np.log(uniform.astype(np.float32))
    bounds += _SLACK
    leader = bounds.argmax()
    rivals = np.flatnonzero(bounds >= scores[leader] + gumbel(uniform[leader]))
    return int(rivals[(scores[rivals] + gumbel(uniform[rivals])).argmax()])
