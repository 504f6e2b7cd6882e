"""Sampling on Ascend goes through the host; what is greedy is captured, in :mod:`heptagram_kernels.npu_ops`."""

from __future__ import annotations

from dataclasses import fields, replace

import torch
from torch import Tensor

from heptagram_kernels import cpu
from heptagram_kernels.sampling import Sampling


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
    """See :class:`heptagram_kernels.sampling.VerifySampled`.

    The draw is float64 and wrapping int64, so that a seed gives one answer on every device. Ascend's vector units have
    neither; the sampled sequences' logits are brought to the host, and drawn by the CPU's own code.
    """
    places = sampling.sequences
    drawn, counts = (out.index_select(0, places).cpu() for out in (out_verified, out_accepted))
    host = {spec.name: getattr(sampling, spec.name).cpu() for spec in fields(sampling)}
    pool, rows = _rows_in_use(mask_pool, mask_rows.index_select(0, places))
    cpu.verify_sampled(
        logits=logits.index_select(0, places).cpu(),
        token_ids=token_ids.index_select(0, places).cpu(),
        draft_counts=draft_counts.index_select(0, places).cpu(),
        mask_pool=pool,
        mask_rows=rows,
        sampling=replace(sampling, **{**host, "sequences": torch.arange(len(places))}),
        out_verified=drawn,
        out_accepted=counts,
    )
    out_verified.index_copy_(0, places, drawn.to(logits.device))
    out_accepted.index_copy_(0, places, counts.to(logits.device))


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
    """See :class:`heptagram_kernels.sampling.TokenLogprobs`; float64 again, so on the host."""
    sequences = places[:, 0]
    host = {name: out.cpu() for name, out in (("chosen", out_chosen), ("ids", out_ids), ("logprobs", out_logprobs))}
    pool, rows = _rows_in_use(mask_pool, mask_rows.index_select(0, sequences))
    cpu.token_logprobs(
        logits=logits.index_select(0, sequences).cpu(),
        mask_pool=pool,
        mask_rows=rows,
        places=torch.stack([torch.arange(len(places)), places[:, 1].cpu()], dim=1),
        tokens=tokens.cpu(),
        out_chosen=host["chosen"],
        out_ids=host["ids"],
        out_logprobs=host["logprobs"],
    )
    out_chosen.copy_(host["chosen"])
    out_ids.copy_(host["ids"])
    out_logprobs.copy_(host["logprobs"])


def _rows_in_use(mask_pool: Tensor, mask_rows: Tensor) -> tuple[Tensor, Tensor]:
    """On the host: the rows that ``mask_rows`` [N, 8] name, and where they lie among them."""
    pool = mask_pool.index_select(0, mask_rows.flatten()).cpu()
    return pool, torch.arange(mask_rows.numel()).view(mask_rows.shape)
