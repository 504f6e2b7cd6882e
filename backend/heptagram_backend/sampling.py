"""What a running sequence keeps for sampling, and the bounds of its parameters. No torch."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from heptagram_backend import plan_json
from heptagram_backend.generation import GenerationRequest, SamplingParams

MAX_TOP_LOGPROBS: Final = 20
MAX_TOP_K: Final = 2**31 - 1
SEEDS: Final = (-(2**63), 2**64 - 1)  # of 64 bits, signed or not
MAX_BIASES: Final = 300
MAX_BIAS: Final = 100.0
_SEED_BITS: Final = 48  # of a seed that is made up here: JSON readers that know only doubles can hold it


RejectionSampleMethod = Literal["strict", "probabilistic"]
"""How drafts of sampled answers are verified: they equal what the seed draws anyway, or are accepted by chance."""

REJECTION_SAMPLE_METHODS: Final[tuple[RejectionSampleMethod, ...]] = get_args(RejectionSampleMethod)


@dataclass(frozen=True, slots=True)
class Range:
    """From ``low`` to ``high``; with ``above`` not ``low`` itself."""

    low: float
    high: float
    above: bool = False

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high and not (self.above and value == self.low)

    def __str__(self) -> str:
        return f"{'above' if self.above else 'from'} {self.low:g} {'and at most' if self.above else 'to'} {self.high:g}"


RANGES: Final[Mapping[str, Range]] = {
    "temperature": Range(0, 2),
    "top_p": Range(0, 1, above=True),
    "min_p": Range(0, 1),
    "repetition_penalty": Range(0, 2, above=True),
    "presence_penalty": Range(-2, 2),
    "frequency_penalty": Range(-2, 2),
}


def make_seed() -> int:
    """One that nobody chose."""
    return secrets.randbits(_SEED_BITS)


class SequenceSampling:
    """One sequence's parameters, its seed, and how often each token has been seen."""

    def __init__(self, request: GenerationRequest) -> None:
        self.params: SamplingParams = request.sampling
        self.seed: int = make_seed() if self.params.seed is None else self.params.seed
        self._prompt = len(request.prompt_ids)
        self._read = 0
        self._counts: dict[int, int] = {}

    def history(self, tokens: Sequence[int]) -> Mapping[int, int]:
        """Every token of the sequence ``tokens`` so far, and how often it was generated; empty where it has no effect.

        Only what is new since the last call is read: a sequence never loses tokens.
        """
        if self.params.penalizes:
            for place in range(self._read, len(tokens)):
                token = tokens[place]
                self._counts[token] = self._counts.get(token, 0) + (place >= self._prompt)
            self._read = len(tokens)
        return self._counts


def check_plan(request: GenerationRequest, *, vocab_size: int) -> None:
    """Refuse what no preprocess writes; ``generate`` can be called by anybody.

    Raises:
        RequestError: naming the field of the plan.
    """
    params = request.sampling
    for name, bounds in RANGES.items():
        if getattr(params, name) not in bounds:
            raise plan_json.fault(f"`sampling.{name}` must be {bounds}")
    if not 0 <= params.top_k <= MAX_TOP_K:
        raise plan_json.fault(f"`sampling.top_k` must be from 0 to {MAX_TOP_K}")
    if params.seed is not None and not SEEDS[0] <= params.seed <= SEEDS[1]:
        raise plan_json.fault(f"`sampling.seed` must be from {SEEDS[0]} to {SEEDS[1]}")
    biased = {entry.token for entry in params.logit_bias}
    if len(biased) != len(params.logit_bias) or len(biased) > MAX_BIASES:
        raise plan_json.fault(f"`sampling.logit_bias` must have at most {MAX_BIASES} tokens, none twice")
    if not all(0 <= entry.token < vocab_size and abs(entry.bias) <= MAX_BIAS for entry in params.logit_bias):
        raise plan_json.fault(
            f"`sampling.logit_bias` must hold tokens below {vocab_size} and biases from -{MAX_BIAS:g} to {MAX_BIAS:g}"
        )
    if request.logprobs is not None and not 0 <= request.logprobs <= MAX_TOP_LOGPROBS:
        raise plan_json.fault(f"`logprobs` must be from 0 to {MAX_TOP_LOGPROBS}")
