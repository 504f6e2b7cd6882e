"""One row's draw on the CPU, in numpy: from the allowed logits to the token.

All numbers are float64. What is drawn depends on the row and its sequence alone, so a batch cannot change it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from heptagram_kernels.bitmask import NO_TOKEN
from heptagram_kernels.noise import gumbel, stream, uniforms

Ids = NDArray[np.int64]
Numbers = NDArray[np.float64]

_SLACK: Final = 1e-4  # more than a float32 logarithm of these numbers can be off
_BINS_PER_NAT: Final = 16
_BINS: Final = 1024


@dataclass(frozen=True, slots=True)
class Draw:
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
    probabilistic: bool
    history: Ids
    counts: Ids
    bias_ids: Ids
    biases: Numbers

    @property
    def penalizes(self) -> bool:
        return self.repetition != 1 or self.presence != 0 or self.frequency != 0


def draw_token(draw: Draw, ids: Ids, logits: Numbers, *, drafts: Sequence[int], proposed: int | None = None) -> int:
    """The token of one row that follows ``drafts``; ``logits`` are the caller's to give away.

    A ``proposed`` token is accepted or replaced by rejection sampling.
    """
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
    noise = uniforms(stream(draw.seed, draw.position + len(drafts)), ids)
    if proposed is not None:
        _, at = find(ids, np.array([proposed]))
        if at.size:
            if noise[at[0]] < math.exp(scores[at[0]]) / np.exp(scores).sum():
                return proposed
            ids, scores, noise = np.delete(ids, at), np.delete(scores, at), np.delete(noise, at)
    return int(ids[_gumbel_argmax(scores, noise)])


def _edit(draw: Draw, ids: Ids, logits: Numbers, drafts: Sequence[int]) -> None:
    """Bias and penalties, in place."""
    if draw.bias_ids.size:
        here, at = find(ids, draw.bias_ids)
        logits[at] += draw.biases[here]
    if draw.penalizes:
        seen, counts = draw.history, draw.counts
        if drafts:
            seen, inverse = np.unique(np.concatenate([seen, np.array(drafts)]), return_inverse=True)
            weights = np.concatenate([counts, np.ones(len(drafts), dtype=np.int64)])
            counts = np.bincount(inverse, weights=weights).astype(np.int64)
        here, at = find(ids, seen)
        values, counts = logits[at], counts[here]
        values = np.where(values > 0, values / draw.repetition, values * draw.repetition)
        logits[at] = values - draw.frequency * counts - draw.presence * (counts > 0)


def find(ids: Ids, tokens: Ids) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which of ``tokens`` are among the ascending ``ids``, and where these lie in ``ids``."""
    at = np.minimum(np.searchsorted(ids, tokens), ids.size - 1)
    here = np.flatnonzero(ids[at] == tokens)
    return here, at[here]


def _truncate(draw: Draw, ids: Ids, scores: Numbers) -> tuple[Ids, Numbers]:
    """What min-p, top-k and top-p leave; the largest score is 0."""
    if draw.min_p > 0:
        kept = np.flatnonzero(scores >= math.log(draw.min_p))
        ids, scores = ids[kept], scores[kept]
    if 0 < draw.top_k < ids.size:
        kept = largest(scores, draw.top_k)
        ids, scores = ids[kept], scores[kept]
    if draw.top_p < 1:
        kept = _nucleus(scores, draw.top_p)
        ids, scores = ids[kept], scores[kept]
    return ids, scores


def largest(scores: Numbers, count: int) -> NDArray[np.intp]:
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
