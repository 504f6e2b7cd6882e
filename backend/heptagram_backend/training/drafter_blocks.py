"""A drafter's blocks over one answer, as training and evaluation need them: many anchors at once, under one mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from heptagram_backend.drafts.dspark.network import DraftNetwork, KeysValues
from heptagram_backend.training.drafter_data import Answer
from heptagram_backend.training.losses import Thought


@dataclass(frozen=True, slots=True)
class Blocks:
    """Some blocks of one answer.

    ``positions`` int64 [N] are the anchors', ``anchors`` int64 [N] their tokens. ``labels`` int64 [N, block] are the
    tokens that follow and ``previous`` those before each of them, as places in the draft vocabulary. ``counts`` bool
    [N, block] says which of them are part of the answer, ``thought`` what the target thought there.
    """

    positions: Tensor
    anchors: Tensor
    labels: Tensor
    previous: Tensor
    counts: Tensor
    thought: Thought


class SharedContext:
    """Keys and values [T, kv_heads, head_dim] of one sequence, of which each block sees those before its anchor.

    Implements :class:`drafts.dspark.network.Context`. ``seen`` bool [N, T].
    """

    def __init__(self, keys_values: KeysValues, seen: Tensor) -> None:
        self._keys, self._values = keys_values
        self._seen = seen

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, *, scale: float) -> Tensor:
        """See :meth:`Context.attend`."""
        rows, kv_heads = len(self._keys), self._keys.shape[1]
        grouped = scale * queries.view(*queries.shape[:2], kv_heads, -1, queries.shape[3])
        past = torch.einsum("nbkgd,tkd->nkgbt", grouped, self._keys)
        past = past.masked_fill(~self._seen[:, None, None, None], -torch.inf)
        inside = torch.einsum("nbkgd,nckd->nkgbc", grouped, keys)
        weights = torch.softmax(torch.cat([past, inside], dim=-1).float(), dim=-1).to(queries.dtype)
        mixed = torch.einsum("nkgbt,tkd->nbkgd", weights[..., :rows], self._values)
        return (mixed + torch.einsum("nkgbc,nckd->nbkgd", weights[..., rows:], values)).flatten(2)


def every_anchor(answer: Answer) -> Tensor:
    """Positions that the answer's blocks can start from: the token before each of its own."""
    return torch.arange(answer.prompt - 1, len(answer.tokens) - 1)


def drawn_anchors(answer: Answer, generator: torch.Generator, *, answers: int, prompts: int) -> Tensor:
    """At most ``answers`` of the answer's anchors, and ``prompts`` within the prompt; rising."""
    own, before = every_anchor(answer), torch.arange(1, answer.prompt - 1)
    picked = [
        every[torch.randperm(len(every), generator=generator)[:most]]
        for every, most in ((own, answers), (before, prompts))
    ]
    return torch.cat(picked).sort().values


def cut(network: DraftNetwork, answer: Answer, positions: Tensor) -> Blocks:
    """The blocks of ``answer`` whose anchors stand at ``positions``."""
    block = network.config.block_size
    places = positions.unsqueeze(1) + torch.arange(block)
    tokens = answer.tokens
    counts = places + 1 < len(tokens)
    following = (places + 1).clamp(max=len(tokens) - 1)
    outside = network.draft_ids.cpu()
    labels, previous = outside[tokens[following]], outside[tokens[places.clamp(max=len(tokens) - 1)]]
    said = (following - answer.prompt).clamp(min=0)
    ids, chances = outside[answer.top_ids[said]], answer.top_logprobs[said].float().exp()
    # What the target would have said within the prompt is not known: what stands there counts as certain.
    given = following < answer.prompt
    ids[given], chances[given] = labels[given].unsqueeze(1), 0.0
    chances[..., 0][given] = 1.0
    return Blocks(positions, tokens[positions], labels, previous, counts, Thought(ids, chances))


def hidden_states(network: DraftNetwork, answer: Answer, blocks: Blocks) -> Tensor:
    """The network's [N, block, D] for each block."""
    weight = network.fc.weight
    last = int(blocks.positions.max())
    hidden = answer.hidden[:last].to(weight.device, weight.dtype)
    seen = torch.arange(last) < blocks.positions.unsqueeze(1)
    seen = seen.to(weight.device)
    contexts = [SharedContext(pair, seen) for pair in network.context(hidden, torch.arange(last, device=weight.device))]
    output: Tensor = network(blocks.anchors.to(weight.device), blocks.positions.to(weight.device), contexts)
    return output


def taught(network: DraftNetwork, hidden: Tensor, previous: Tensor) -> tuple[Tensor, Tensor | None]:
    """Logits [N, block, draft vocabulary] and confidences [N, block] when each token's predecessor is known.

    Args:
        hidden: [N, block, D], of :func:`hidden_states`.
        previous: int64 [N, block], places in the draft vocabulary.
    """
    logits = network.logits(hidden)
    known = hidden[..., :0]
    if network.markov_head is not None:
        known = network.markov_head.markov_w1(previous)
        biases, state = [], None
        for place in range(hidden.shape[1]):
            bias, state = network.markov_head.step(previous[:, place], hidden[:, place], state)
            biases.append(bias)
        logits = logits + torch.stack(biases, dim=1)
    if network.confidence_head is None:
        return logits, None
    flat = network.confidence_head(hidden.flatten(0, 1), known.flatten(0, 1))
    return logits, cast(Tensor, flat).view(hidden.shape[:2])
