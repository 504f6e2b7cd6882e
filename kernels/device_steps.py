"""For ``device_check.py``: whole K7 steps of a toy model through the engine's own program, on a device and on the CPU.

The program captures its buckets where the device's graphs record. Logits come from a table, so that both sides have the
same bits, and a step starts from the state that the one before left on its side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import torch
from torch import Tensor

from heptagram_kernels.buffers import K7Buffers
from heptagram_kernels.devices import Device, load_device
from heptagram_kernels.layout import ROWS, Bindings, words_for
from heptagram_kernels.program import K7Program
from heptagram_kernels.sampling import Sampling
from heptagram_kernels.sampling_warm_up import every_branch
from heptagram_kernels.workspace import Workspace

_STATES, _SLOTS, _STEPS, _LIMIT = 97, 4, 6, 60
_OUTPUTS: Final = ("verified", "counts", "finished", "state_tokens", "state_positions", "state_draft_counts")


@dataclass(frozen=True, slots=True)
class _Toy:
    """The token behind a token at a position: a row of the table, and what it likes best."""

    table: Tensor  # [_STATES, V]
    best: Tensor  # int64 [_STATES]

    def forward(self, token_ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
        del slots
        rows = positions.unsqueeze(1) + torch.arange(ROWS, device=positions.device)
        return self.table[(token_ids * 3 + rows) % _STATES]

    def draft(self, buffers: K7Buffers, anchors: Tensor) -> None:
        """Five right drafts where nothing is masked, and two wrong ones."""
        token, place = anchors, buffers.positions + buffers.counts
        for draft in range(ROWS - 1):
            token = self.best[(token * 3 + place + draft) % _STATES] + int(draft >= 5)
            buffers.next_drafts[:, draft] = token
        buffers.next_counts.fill_(ROWS - 1)


def check_steps(device: Device, where: str, *, vocab_size: int, real_tokens: int) -> None:
    """Steps on ``where`` equal those of the CPU, ordinary, constrained and sampled.

    Raises:
        AssertionError: naming the step and the tensor.
    """
    random = torch.Generator().manual_seed(5)
    table = torch.randn(_STATES, vocab_size, generator=random).bfloat16()
    table[:, real_tokens:] = 100.0  # what padding says must not count
    best = table[:, :real_tokens].argmax(dim=1).clamp(max=real_tokens - 2)
    masks = torch.randint(-(2**31), 2**31, (2, words_for(vocab_size)), generator=random).int()
    make = partial(_program, masks=masks, real_tokens=real_tokens)
    programs = [
        make(load_device("cpu"), "cpu", _Toy(table, best)),
        make(device, where, _Toy(table.to(where), best.to(where))),
    ]
    for step in range(_STEPS):
        kind = ("ordinary", "constrained", "sampled")[step % 3]
        ours, theirs = (_step(program, kind) for program in programs)
        for name, value in ours.items():
            assert torch.equal(value, theirs[name]), f"step {step}, {kind}: {name} differs from the CPU's"
    assert not any(program.misses for program in programs), "a step found no graph"


def _program(device: Device, where: str, toy: _Toy, *, masks: Tensor, real_tokens: int) -> K7Program:
    workspace = Workspace("step", device=where)
    vocab_size = toy.table.shape[1]
    workspace.reserve(K7Buffers.declarations(Bindings(_SLOTS, vocab_size, 1 + len(masks), slots=_SLOTS)))
    buffers = K7Buffers.take(workspace)
    buffers.mask_pool[1:] = masks.to(where)
    program = K7Program(
        buffers, device=device, forward=toy.forward, batches=(1, _SLOTS), real_tokens=real_tokens, draft=toy.draft
    )
    program.warm_up(vocab_size=vocab_size, dtype=toy.table.dtype)
    buffers.state_tokens[:_SLOTS, 0] = torch.arange(_SLOTS, device=where)
    buffers.state_generations[:_SLOTS] = 1
    buffers.state_draft_limits[:_SLOTS] = _LIMIT
    buffers.state_max_drafts[:_SLOTS] = ROWS - 1
    return program


def _step(program: K7Program, kind: str) -> dict[str, Tensor]:
    """Three of the slots; the fourth place is padding."""
    views, where = program.bucket(3), program.buffers.slots.device
    views.slots[:3] = torch.tensor([2, 0, 3], device=where)
    views.guards[:3] = 1
    views.mask_rows.zero_()
    if kind == "constrained":
        views.mask_rows[0], views.mask_rows[1, 2] = 1, 2
    program.pad(views, 3)
    program.settle(views, program.forward(views), _drawn(where) if kind == "sampled" else None)
    return {name: getattr(views, name).cpu().clone() for name in _OUTPUTS}


def _drawn(where: torch.device) -> Sampling:
    return replace(every_branch(where), sequences=torch.tensor([1], device=where))
