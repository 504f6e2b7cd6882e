"""The sequential part: tokens of a block from left to right, each one's logits corrected by the token before it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from heptagram_backend.drafts.dspark.network import DraftNetwork


@dataclass(frozen=True, slots=True)
class Walk:
    """``tokens`` int64 [B, block]; ``logits`` [B, block, draft vocabulary], the exact proposal's; ``confidence``
    float32 [B, block], the chance that the target accepts a token when it accepted all before, or None without such a
    head."""

    tokens: Tensor
    logits: Tensor
    confidence: Tensor | None


def walk(
    network: DraftNetwork,
    hidden: Tensor,
    anchors: Tensor,
    *,
    base: Tensor | None = None,
    given: Tensor | None = None,
    allowed: Tensor | None = None,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
) -> Walk:
    """Choose every token of a block: the likeliest, or drawn at ``temperature``.

    Args:
        hidden: [B, block, D] of :class:`DraftNetwork`.
        anchors: int64 [B], the tokens before the block.
        base: [B, block, draft vocabulary], the network's logits of ``hidden`` where they are known.
        given: int64 [B, n], tokens that stand already; the choice begins behind them.
        allowed: bool [B, V], what the first chosen token may be.
    """
    base = network.logits(hidden) if base is None else base
    fixed = 0 if given is None else given.shape[1]
    tokens: list[Tensor] = []
    logits: list[Tensor] = []
    confidence: list[Tensor] = []
    previous, state = anchors, None
    for place in range(base.shape[1]):
        here, row = hidden[:, place], base[:, place]
        known = here[:, :0]
        if network.markov_head is not None:
            before = network.draft_ids[previous]
            bias, state = network.markov_head.step(before, here, state)
            row, known = row + bias, network.markov_head.markov_w1(before)
        if network.confidence_head is not None:
            confidence.append(network.confidence_head(here, known))
        if allowed is not None and place == fixed:
            row = row.masked_fill(~allowed[:, network.vocabulary], -torch.inf)
        stands = given is not None and place < fixed
        if given is not None and stands:
            previous = given[:, place]
        else:
            previous = network.vocabulary[_choose(row, temperature, generator)]
        tokens.append(previous)
        logits.append(row)
    return Walk(
        torch.stack(tokens, dim=1),
        torch.stack(logits, dim=1),
        torch.stack(confidence, dim=1) if confidence else None,
    )


def _choose(logits: Tensor, temperature: float, generator: torch.Generator | None) -> Tensor:
    if temperature == 0:
        return logits.argmax(dim=-1)
    chances = torch.softmax(logits.float() / temperature, dim=-1)
    return torch.multinomial(chances, 1, generator=generator).squeeze(-1)
