"""Sampling and log probabilities of a step's sequences that ask for them; a step without any of them pays nothing."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any, Final

import torch
from torch import Tensor

from heptagram_backend.generation import SamplingParams
from heptagram_backend.inputs import Batch
from heptagram_backend.logprobs import ScoredToken
from heptagram_backend.plan import Draft
from heptagram_backend.sampling import RejectionSampleMethod, SequenceSampling
from heptagram_backend.sequence import Sequence
from heptagram_kernels.devices import Device
from heptagram_kernels.sampling import Sampling

Planned = Seq[tuple[Sequence, Draft]]

# Arguments of the operation that are a number of the request.
_NUMBERS: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition": "repetition_penalty",
    "presence": "presence_penalty",
    "frequency": "frequency_penalty",
}


class RowSampler:
    """What the step's verification draws with, and what is asked of it afterwards."""

    def __init__(self, device: Device, method: RejectionSampleMethod = "strict") -> None:
        self._probabilistic = method == "probabilistic"
        self._logprobs = device.token_logprobs

    def arguments(self, planned: Planned, device: torch.device) -> Sampling | None:
        """How the sequences that sample draw; ``None`` where none does."""
        sampled = [(place, sequence) for place, (sequence, _) in enumerate(planned) if sequence.sampling is not None]
        return _arguments(sampled, device, probabilistic=self._probabilistic) if sampled else None

    def score(
        self, planned: Planned, batch: Batch, logits: Tensor, verdicts: Seq[Seq[int]]
    ) -> Mapping[int, tuple[ScoredToken, ...]]:
        """By place in the batch, the verified tokens of the sequences that ask for log probabilities."""
        return {
            place: self._scored(place, count, batch, logits, verdicts[place])
            for place, (sequence, _) in enumerate(planned)
            if (count := sequence.request.logprobs) is not None and verdicts[place][-1] >= 0
        }

    def _scored(
        self, place: int, count: int, batch: Batch, logits: Tensor, tokens: Seq[int]
    ) -> tuple[ScoredToken, ...]:
        size, device = len(tokens), logits.device
        chosen = torch.empty(size, dtype=torch.float64, device=device)
        ids = torch.empty((size, count), dtype=torch.int64, device=device)
        logprobs = torch.empty((size, count), dtype=torch.float64, device=device)
        self._logprobs(
            logits=logits,
            mask_pool=batch.buffers.mask_pool,
            mask_rows=batch.buffers.mask_rows,
            places=torch.tensor([[place, row] for row in range(size)], device=device),
            tokens=torch.tensor(tokens, device=device),
            out_chosen=chosen,
            out_ids=ids,
            out_logprobs=logprobs,
        )
        best = [
            tuple((token, logprob) for token, logprob in zip(*row, strict=True) if token >= 0)
            for row in zip(ids.tolist(), logprobs.tolist(), strict=True)
        ]
        return tuple(map(ScoredToken, tokens, chosen.tolist(), best))


def _arguments(sampled: Seq[tuple[int, Sequence]], device: torch.device, *, probabilistic: bool) -> Sampling:
    states: list[SequenceSampling] = [sequence.sampling for _, sequence in sampled if sequence.sampling is not None]
    params = [state.params for state in states]
    histories = [state.history(sequence.tokens) for state, (_, sequence) in zip(states, sampled, strict=True)]

    def whole(values: Seq[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    def numbers(values: Seq[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device)

    columns: dict[str, Any] = {name: numbers(_column(params, field)) for name, field in _NUMBERS.items()}
    return Sampling(
        sequences=whole([place for place, _ in sampled]),
        positions=whole([len(sequence.tokens) for _, sequence in sampled]),
        seeds=whole([_int64(state.seed) for state in states]),
        top_k=whole([each.top_k for each in params]),
        probabilistic=torch.full((len(params),), probabilistic, device=device),
        history_ids=whole([token for history in histories for token in history]),
        history_counts=whole([count for history in histories for count in history.values()]),
        history_ends=whole(_ends([len(history) for history in histories])),
        bias_ids=whole([entry.token for each in params for entry in each.logit_bias]),
        biases=numbers([entry.bias for each in params for entry in each.logit_bias]),
        bias_ends=whole(_ends([len(each.logit_bias) for each in params])),
        **columns,
    )


def _column(params: Seq[SamplingParams], name: str) -> list[float]:
    return [getattr(each, name) for each in params]


def _ends(sizes: Seq[int]) -> list[int]:
    ends = []
    total = 0
    for size in sizes:
        total += size
        ends.append(total)
    return ends


def _int64(value: int) -> int:
    """``value`` modulo 2^64, as the signed number with these bits."""
    return (value + 2**63) % 2**64 - 2**63
