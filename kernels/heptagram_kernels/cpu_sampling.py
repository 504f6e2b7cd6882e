"""Sampling on the CPU, in numpy: only the allowed tokens of a row are touched, and only rows that can be committed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heptagram_kernels.bitmask import NO_TOKEN, allowed_ids, check_arguments, check_values
from heptagram_kernels.cpu_draw import Draw, Ids, Numbers, draw_token, find, largest
from heptagram_kernels.sampling import Sampling, check_logprobs, check_sampling, check_sampling_values

# Fields of Draw that are numbers, and their arguments.
_COLUMNS: Final = {"place": "sequences", "position": "positions", "seed": "seeds"} | {
    name: name
    for name in ("temperature", "top_k", "top_p", "min_p", "repetition", "presence", "frequency", "probabilistic")
}


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
            proposed = tokens[row + 1] if draw.probabilistic and row < drafts else None
            token = draw_token(draw, ids, scores, drafts=tokens[1 : row + 1], proposed=proposed)
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
        _, at = find(ids, np.array([token]))
        chosen[index] = numbers[at[0]] if at.size else -math.inf
        best = largest(numbers, min(top_ids.shape[1], ids.size))
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


def _draws(sampling: Sampling) -> Iterator[Draw]:
    columns = {name: getattr(sampling, argument).tolist() for name, argument in _COLUMNS.items()}
    history, counts = sampling.history_ids.numpy(), sampling.history_counts.numpy()
    bias_ids, biases = sampling.bias_ids.numpy(), sampling.biases.numpy()
    seen = bias = 0
    ends = zip(sampling.history_ends.tolist(), sampling.bias_ends.tolist(), strict=True)
    for index, (seen_end, bias_end) in enumerate(ends):
        yield Draw(
            **{name: column[index] for name, column in columns.items()},
            history=history[seen:seen_end],
            counts=counts[seen:seen_end],
            bias_ids=bias_ids[bias:bias_end],
            biases=biases[bias:bias_end],
        )
        seen, bias = seen_end, bias_end
