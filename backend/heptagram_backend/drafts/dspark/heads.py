"""What follows the draft network: the Markov head, which makes a position depend on the token before it, and the
confidence head, which estimates how likely the target accepts that position when it accepted all before."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

from heptagram_backend.drafts.dspark.config import DSparkConfig, MarkovKind


class VanillaMarkov(nn.Module):
    """Bias ``W2 W1[x]`` of the previous token ``x``: a bigram table of low rank."""

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(config.markov_tokens, config.markov_rank)
        self.markov_w2 = nn.Linear(config.markov_rank, config.draft_vocab_size, bias=False)

    def step(self, previous: Tensor, hidden: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The bias [B, draft vocabulary] of one position, and the state for the next one.

        Args:
            previous: int64 [B], the token before each position, as a row of the embedding.
            hidden: [B, D], the draft network's output there.
            state: what the step before returned; None at the first position.
        """
        del hidden, state
        return self.markov_w2(self.markov_w1(previous)), None


class GatedMarkov(VanillaMarkov):
    """The hidden state decides how much of the bias is used, in each of the rank's dimensions."""

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__(config)
        self.gate_proj = nn.Linear(config.hidden_size + config.markov_rank, config.markov_rank)

    def step(self, previous: Tensor, hidden: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        del state
        known = self.markov_w1(previous)
        gate = torch.sigmoid(self.gate_proj(torch.cat([hidden, known], dim=-1)))
        return self.markov_w2(gate * known), None


class RecurrentMarkov(VanillaMarkov):
    """A gated recurrent state [B, rank] remembers all tokens of the block so far."""

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__(config)
        self.joint_proj = nn.Linear(2 * config.markov_rank + config.hidden_size, 3 * config.markov_rank)

    def step(self, previous: Tensor, hidden: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        known = self.markov_w1(previous)
        before = torch.zeros_like(known) if state is None else state
        gate, candidate, output = self.joint_proj(torch.cat([before, known, hidden], dim=-1)).chunk(3, dim=-1)
        keep = torch.sigmoid(gate)
        return self.markov_w2(torch.tanh(output)), keep * before + (1 - keep) * torch.tanh(candidate)


MARKOV_HEADS: Final[dict[MarkovKind, type[VanillaMarkov]]] = {
    "vanilla": VanillaMarkov,
    "gated": GatedMarkov,
    "rnn": RecurrentMarkov,
}


class ConfidenceHead(nn.Module):
    """``w . [h; W1[x]] + b``: the logit of the conditional acceptance. Without ``with_markov`` it sees ``h`` alone."""

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__()
        self._with_markov = config.confidence_with_markov
        self.proj = nn.Linear(config.hidden_size + config.markov_rank * self._with_markov, 1)

    def forward(self, hidden: Tensor, known: Tensor) -> Tensor:
        """Probabilities, float32 [B], for ``hidden`` [B, D] and the previous tokens' embeddings ``known`` [B, rank]."""
        features = torch.cat([hidden, known], dim=-1) if self._with_markov else hidden
        logits: Tensor = self.proj(features).squeeze(-1)
        return torch.sigmoid(logits.float())
