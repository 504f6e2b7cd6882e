"""The row-invariance self-test: does a sequence's answer depend on anything but its own tokens?

The promise of one answer (with and without drafts, alone or in company) holds on a device exactly when every check here
passes bit for bit. The tests run it, and so can an operator on new hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heptagram_backend.targets.base import PagedTarget, PromptRows, Target
from heptagram_kernels.layout import ROWS

# Around a multiple of 256 rows the attention of neighbouring steps has different sizes.
_SHORT = (21, 245, 501)
_LONG = (*_SHORT, 1013, 2013)


@dataclass(frozen=True, slots=True)
class Check:
    """``difference`` is the largest absolute one between logits that should be equal; 0.0 means bit for bit."""

    name: str
    difference: float

    @property
    def passed(self) -> bool:
        return self.difference == 0.0


@dataclass(frozen=True, slots=True)
class InvarianceReport:
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def __str__(self) -> str:
        return ", ".join(
            f"{check.name} {'equal' if check.passed else f'differs by {check.difference:.3g}'}" for check in self.checks
        )


def row_invariance(target: Target, *, report: Callable[[str], object] = str) -> InvarianceReport:
    """Run every check on an idle target; all slots are overwritten. Contexts of up to 2,013 tokens, where they fit.

    ``report`` is told what is checked now; by default nobody is.
    """
    room = target.max_model_len - 3 * ROWS
    if room < _SHORT[0]:
        raise ValueError(f"max_model_len: {target.max_model_len}; the self-test needs {_SHORT[0] + 3 * ROWS}")
    probe = _Probe(target)
    checks = []
    wanted = _CHECKS | (_PAGED_CHECKS if isinstance(target, PagedTarget) else {})
    for number, (name, (check, lengths)) in enumerate(wanted.items(), start=1):
        report(f"{name} ({number} of {len(wanted)})")
        checks.append(Check(name, max(check(probe, length) for length in lengths if length <= room)))
    return InvarianceReport(tuple(checks))


class _Probe:
    """Runs random but reproducible sequences on a target."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def tokens(self, seed: int, length: int) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        drawn: list[int] = torch.randint(self.target.vocab_size, (length,), generator=generator).tolist()
        return drawn

    def prefill(self, slot: int, tokens: Sequence[int]) -> None:
        chunk = self.target.prefill_chunk
        for start in range(0, len(tokens), chunk):
            self.target.prefill(slot=slot, start=start, token_ids=tokens[start : start + chunk])

    def step(self, *places: tuple[int, Sequence[int], int]) -> Tensor:
        """Logits [B, 8, V] of a step over (slot, eight tokens, position)."""
        slots, tokens, positions = zip(*places, strict=True)
        return self.target.forward(torch.tensor(tokens), torch.tensor(positions), torch.tensor(slots)).clone()

    def start(self, slot: int, seed: int, length: int) -> list[int]:
        """Prefill ``length`` tokens and return them with the ones that follow."""
        tokens = self.tokens(seed, length + 2 * ROWS)
        self.prefill(slot, tokens[:length])
        return tokens


def _difference(left: Tensor, right: Tensor) -> float:
    return 0.0 if torch.equal(left, right) else (left.float() - right.float()).abs().max().item()


def _company(probe: _Probe, length: int) -> float:
    """1 to ``num_slots`` sequences in a step, of various lengths."""
    slots = range(probe.target.num_slots)
    lengths = [max(1, length - 37 * slot) for slot in slots]
    tokens = [probe.start(slot, seed=slot, length=lengths[slot]) for slot in slots]
    places = [(slot, tokens[slot][lengths[slot] :][:ROWS], lengths[slot]) for slot in slots]
    alone = [probe.step(place)[0] for place in places]
    worst = 0.0
    for count in range(2, len(places) + 1):
        together = probe.step(*places[:count])
        worst = max([worst, *(_difference(together[index], alone[index]) for index in range(count))])
    return worst


def _place(probe: _Probe, length: int) -> float:
    """Another slot, and another place in the batch."""
    last = probe.target.num_slots - 1
    tokens = probe.start(0, seed=1, length=length)
    probe.start(last, seed=1, length=length)
    drafts = tokens[length:][:ROWS]
    alone = probe.step((0, drafts, length))[0]
    if last == 0:
        return 0.0
    both = probe.step((last, drafts, length), (0, drafts, length))
    return max(_difference(both[index], alone) for index in (0, 1))


def _row(probe: _Probe, length: int) -> float:
    """The same position as row 0 to 7 of a step; the sizes of attention differ where a bucket ends in between."""
    tokens = probe.start(0, seed=2, length=length)
    first = probe.step((0, tokens[length:][:ROWS], length))[0]
    worst = 0.0
    for shift in range(1, ROWS):
        shifted = probe.step((0, tokens[length + shift :][:ROWS], length + shift))[0]
        worst = max(worst, _difference(shifted[: ROWS - shift], first[shift:]))
    return worst


def _drafts(probe: _Probe, length: int) -> float:
    """Rows behind a row, and a rejected step that is rewritten, change nothing."""
    tokens = probe.start(0, seed=3, length=length)
    good = tokens[length:][:ROWS]
    first = probe.step((0, good, length))[0]
    worst = 0.0
    for kept in range(1, ROWS):
        other = [*good[:kept], *probe.tokens(100 + kept, ROWS - kept)]
        worst = max(worst, _difference(probe.step((0, other, length))[0, :kept], first[:kept]))
    return max(worst, _difference(probe.step((0, good, length))[0], first))


def _reuse(probe: _Probe, length: int) -> float:
    """A slot that another, longer sequence had."""
    tokens = probe.start(0, seed=4, length=length)
    drafts = tokens[length:][:ROWS]
    first = probe.step((0, drafts, length))[0]
    longest = (probe.target.max_model_len - ROWS) // ROWS * ROWS
    other = probe.start(0, seed=5, length=min(longest, length + 300))
    probe.step((0, other[-ROWS:], min(longest, length + 300)))
    probe.prefill(0, tokens[:length])
    return _difference(probe.step((0, drafts, length))[0], first)


def _prefill(probe: _Probe, length: int) -> float:
    """Cache rows written by a longer prefill, or by steps: what resuming a preempted sequence relies on."""
    tokens = probe.start(0, seed=6, length=length)
    drafts = tokens[length:][:ROWS]
    first = probe.step((0, drafts, length))[0]
    probe.prefill(0, tokens)
    worst = _difference(probe.step((0, drafts, length))[0], first)
    for position in range(max(0, length % ROWS + (length // ROWS - 8) * ROWS), length, ROWS):
        probe.step((0, tokens[position:][:ROWS], position))
    return max(worst, _difference(probe.step((0, drafts, length))[0], first))


def _blocks(probe: _Probe, length: int) -> float:
    """Blocks that are no neighbours, and a prompt that is cut at other places."""
    target = probe.target
    assert isinstance(target, PagedTarget)
    tokens = probe.start(0, seed=7, length=length)
    drafts = tokens[length:][:ROWS]
    first = probe.step((0, drafts, length))[0]
    blocks = range(-(-(target.max_model_len + ROWS) // target.paging.block_size))
    worst = 0.0
    for table in ([*blocks[1::2], *blocks[::2]], list(blocks)):
        target.set_blocks(0, table)
        for start in range(0, length, 3 * ROWS):
            target.prefill(slot=0, start=start, token_ids=tokens[start : min(length, start + 3 * ROWS)])
        worst = max(worst, _difference(probe.step((0, drafts, length))[0], first))
    return worst


def _mixed(probe: _Probe, length: int) -> float:
    """Rows of another prompt in the same forward, and rows written so."""
    target, last = probe.target, probe.target.num_slots - 1
    assert isinstance(target, PagedTarget)
    if last == 0:
        return 0.0
    tokens, other = probe.start(0, seed=8, length=length), probe.start(last, seed=9, length=length)
    anchor, drafts = torch.tensor([length]), tokens[length:][:ROWS]
    alone = probe.step((0, drafts, length))[0]
    later = probe.step((last, other[length:][:ROWS], length))[0]
    worst = 0.0
    for start in range(0, length, target.prefill_chunk):
        rows = PromptRows(last, start, other[start : min(length, start + target.prefill_chunk)])
        together = target.mixed(torch.tensor([drafts]), anchor, torch.tensor([0]), [rows])[0]
        worst = max(worst, _difference(together, alone))
    return max(worst, _difference(probe.step((last, other[length:][:ROWS], length))[0], later))


_CHECKS: dict[str, tuple[Callable[[_Probe, int], float], tuple[int, ...]]] = {
    "company": (_company, _SHORT),
    "place": (_place, _SHORT),
    "row": (_row, _LONG),
    "drafts": (_drafts, _SHORT),
    "reuse": (_reuse, _SHORT),
    "prefill": (_prefill, _SHORT),
}
_PAGED_CHECKS: dict[str, tuple[Callable[[_Probe, int], float], tuple[int, ...]]] = {
    "blocks": (_blocks, _SHORT),
    "mixed": (_mixed, _SHORT),
}
