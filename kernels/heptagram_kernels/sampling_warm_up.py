"""A sampling request that touches every branch of the sampler, so that its first caller waits for no compilation."""

from __future__ import annotations

import torch

from heptagram_kernels.sampling import Sampling


def every_branch(device: torch.device) -> Sampling:
    """The first sequence of a batch, with a history, a bias, penalties and every cut."""

    def whole(value: int) -> torch.Tensor:
        return torch.tensor([value], dtype=torch.int64, device=device)

    def number(value: float) -> torch.Tensor:
        return torch.tensor([value], dtype=torch.float64, device=device)

    return Sampling(
        sequences=whole(0),
        positions=whole(1),
        seeds=whole(1),
        temperature=number(1.0),
        top_k=whole(2),
        top_p=number(0.5),
        min_p=number(0.1),
        repetition=number(1.1),
        presence=number(0.1),
        frequency=number(0.1),
        probabilistic=torch.tensor([True], device=device),
        history_ids=whole(0),
        history_counts=whole(1),
        history_ends=whole(1),
        bias_ids=whole(0),
        biases=number(1.0),
        bias_ends=whole(1),
    )
