"""Examples whose prompts begin alike, as one sequence that computes what they share once.

The token sequences are laid out as the tree of their common beginnings. Each token attends to its ancestors alone and
has the position that it has in its own sequence, so outputs and gradients are those of the separate sequences::

    shared prompt | rest of a | answer a | rest of b | answer b
    0 1 2 3 4     | 5 6       | 7 8      | 5 6 7     | 8 9
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heptagram_backend.training.encode import Encoded


@dataclass(frozen=True, slots=True)
class Packed:
    """Some sequences as one.

    Args:
        ids: int64 [T].
        positions: int64 [T].
        mask: bool [T, T]; row ``i`` is what token ``i`` attends to.
        rows: int64 [N]; where an answer token is predicted.
        labels: int64 [N]; that token.
        examples: int64 [N]; of which example it is.
    """

    ids: Tensor
    positions: Tensor
    mask: Tensor
    rows: Tensor
    labels: Tensor
    examples: Tensor


def pack(encoded: Sequence[Encoded]) -> Packed:
    """Lay out examples; those with a common beginning are neighbours after sorting."""
    ids: list[int] = []
    parents: list[int] = []
    positions: list[int] = []
    targets: list[tuple[int, int, int]] = []
    path: list[int] = []  # the nodes of the sequence before
    for number, example in sorted(enumerate(encoded), key=lambda item: item[1].ids):
        shared = 0
        while shared < min(len(path), len(example.prompt)) and ids[path[shared]] == example.ids[shared]:
            shared += 1
        path = path[:shared]
        for token in example.ids[shared:]:
            parents.append(path[-1] if path else -1)
            positions.append(len(path))
            path.append(len(ids))
            ids.append(token)
        begin = len(example.prompt)
        targets += [(path[begin + place - 1], token, number) for place, token in enumerate(example.answer)]
    rows, labels, examples = torch.tensor(targets).unbind(1)
    return Packed(torch.tensor(ids), torch.tensor(positions), _ancestors(parents), rows, labels, examples)


def _ancestors(parents: Sequence[int]) -> Tensor:
    mask = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] |= mask[parent]
    return mask
