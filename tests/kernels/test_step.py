"""The step as a tensor function: the state it leaves is the one the next step needs, whoever shares the batch."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from heptagram_kernels import reference_sampling
from heptagram_kernels.buffers import K7Buffers
from heptagram_kernels.devices import Device, load_device
from heptagram_kernels.layout import Bindings
from heptagram_kernels.ops import load_ops
from heptagram_kernels.plans import PlanIndex
from heptagram_kernels.program import K7Program
from heptagram_kernels.step import gather
from heptagram_kernels.workspace import Workspace, lock

V, SLOTS = 70, 4


def _next(tokens: Tensor, positions: Tensor) -> Tensor:
    return (tokens * 3 + positions) % V


def _forward(token_ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
    """A model whose next token depends on the last one and its position."""
    del slots
    rows = positions.unsqueeze(1) + torch.arange(8)
    return torch.nn.functional.one_hot(_next(token_ids, rows), V).float()


def _draft(buffers: K7Buffers, anchors: Tensor) -> None:
    """Right for four tokens, then wrong; always seven of them."""
    token, place = anchors, buffers.positions + buffers.counts
    for draft in range(7):
        token = _next(token, place + draft)
        buffers.next_drafts[:, draft] = token if draft < 4 else (token + 1) % V
    buffers.next_counts.fill_(7)


def _program(device: Device, batches: tuple[int, ...] = (1, 2, 4), *, drafts: bool = True) -> K7Program:
    workspace = Workspace("step")
    workspace.reserve(K7Buffers.declarations(Bindings(batch=SLOTS, vocab_size=V, pool_rows=3, slots=SLOTS)))
    buffers = K7Buffers.take(workspace)
    buffers.mask_pool.fill_(-1)
    program = K7Program(
        buffers,
        device=device,
        forward=_forward,
        batches=batches,
        real_tokens=V,
        draft=_draft if drafts else None,
    )
    program.warm_up(vocab_size=V, dtype=torch.float32)
    lock(workspace)
    return program


def _begin(program: K7Program, slot: int, *, token: int, limit: int, generation: int = 1, drafts: int = 7) -> None:
    buffers = program.buffers
    buffers.state_tokens[slot] = torch.tensor([token, *[0] * 7])
    buffers.state_positions[slot] = 0
    buffers.state_draft_counts[slot] = 0
    buffers.state_draft_limits[slot] = limit - 1
    buffers.state_max_drafts[slot] = drafts
    buffers.state_generations[slot] = generation


def _step(program: K7Program, guards: dict[int, int]) -> dict[int, list[int]]:
    """One step of the slots in ``guards`` under these generations: what each takes."""
    views = program.bucket(len(guards))
    views.slots[: len(guards)] = torch.tensor(list(guards))
    views.guards[: len(guards)] = torch.tensor(list(guards.values()))
    views.mask_rows.zero_()
    program.pad(views, len(guards))
    counts = program.settle(views, program.forward(views)).tolist()
    return {slot: views.verified[place, : counts[place]].tolist() for place, slot in enumerate(guards)}


def _greedy(token: int, count: int) -> list[int]:
    made = []
    for place in range(count):
        token = (token * 3 + place) % V
        made.append(token)
    return made


CPU = load_device("cpu")
REFERENCE = replace(CPU, ops=load_ops("reference"), verify_sampled=reference_sampling.verify_sampled)
DEVICES: list[Device] = [REFERENCE, CPU]


@pytest.mark.parametrize("device", DEVICES, ids=["reference", "cpu"])
@pytest.mark.parametrize("drafts", [0, 1, 3, 7])
def test_steps_go_on_without_the_host_and_give_what_plain_decoding_gives(device: Device, drafts: int) -> None:
    program = _program(device)
    for slot in range(3):
        _begin(program, slot, token=slot + 1, limit=23 + slot, drafts=drafts)
    made: dict[int, list[int]] = {slot: [] for slot in range(3)}
    steps = 0
    while any(len(made[slot]) < 23 + slot for slot in made):
        for slot, tokens in _step(program, dict.fromkeys(made, 1)).items():
            made[slot] += tokens
        steps += 1
        assert steps < 40
    assert made == {slot: _greedy(slot + 1, 23 + slot) for slot in made}, "and not one token more than its limit"
    assert steps <= {0: 25, 1: 13, 3: 7, 7: 7}[drafts]
    assert not any(_step(program, dict.fromkeys(made, 1)).values()), "a sequence at its end goes on"
    assert program.misses == 0


def test_both_devices_leave_the_same_state() -> None:
    programs = [_program(device) for device in DEVICES]
    for program in programs:
        for slot in range(4):
            _begin(program, slot, token=slot, limit=50)
        for _ in range(3):
            _step(program, {3: 1, 0: 1, 1: 1})
    states = [
        {name: getattr(program.buffers, name) for name in K7Buffers.__slots__ if name.startswith("state_")}
        for program in programs
    ]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_step_for_a_slots_former_owner_changes_nothing() -> None:
    program = _program(CPU)
    _begin(program, 2, token=5, limit=50, generation=8)
    before = {name: getattr(program.buffers, name).clone() for name in K7Buffers.__slots__ if "state" in name}
    assert _step(program, {2: 7}) == {2: []}
    assert all(torch.equal(getattr(program.buffers, name), tensor) for name, tensor in before.items())
    assert _step(program, {2: 8})[2] == _greedy(5, 1)


def test_a_row_without_usable_logits_does_not_advance() -> None:
    program = _program(CPU)
    _begin(program, 0, token=5, limit=50)
    program.buffers.mask_pool[1] = 0
    views = program.bucket(1)
    views.slots[:], views.guards[:] = 0, 1
    views.mask_rows.fill_(1)
    assert program.settle(views, program.forward(views)).tolist() == [0]
    assert program.buffers.state_positions[0] == 0


def test_padding_to_a_larger_bucket_changes_no_state_and_no_output() -> None:
    exact, padded = _program(CPU), _program(CPU, (4,))
    for program in (exact, padded):
        _begin(program, 1, token=9, limit=30)
    for _ in range(4):
        assert _step(exact, {1: 1}) == _step(padded, {1: 1})
    assert not padded.buffers.state_tokens[SLOTS].any(), "padding wrote tokens"
    with pytest.raises(ValueError, match="a step of 5 sequences; the largest captured one has 4"):
        padded.bucket(5)


def test_a_replay_is_repeatable_bit_for_bit_mutates_no_input_and_keeps_no_activation() -> None:
    program = _program(CPU)
    _begin(program, 0, token=9, limit=30)
    _step(program, {0: 1})
    state = {name: getattr(program.buffers, name).clone() for name in K7Buffers.__slots__ if "state" in name}
    outputs = []
    for _ in range(3):
        for name, tensor in state.items():
            getattr(program.buffers, name).copy_(tensor)
        views = program.bucket(1)
        logits = program.forward(views)
        kept, alive = logits.clone(), weakref.ref(logits)
        inputs = {name: getattr(views, name).clone() for name in ("token_ids", "mask_pool", "mask_rows", "slots")}
        program.settle(views, logits)
        assert torch.equal(logits, kept)
        assert all(torch.equal(getattr(views, name), tensor) for name, tensor in inputs.items())
        del logits
        assert alive() is None, "consumed logits are held"
        outputs.append((views.verified.tolist(), views.finished.tolist(), views.counts.tolist()))
    assert outputs[0] == outputs[1] == outputs[2]


class _Persistent(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Weak references to everything that operations allocate."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: list[weakref.ref[Tensor]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        del types
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            self.made.append(weakref.ref(out))
        return out


def test_replays_allocate_nothing_for_keeps() -> None:
    program = _program(CPU)
    _begin(program, 0, token=9, limit=30)
    with _Persistent() as mode:
        for _ in range(3):
            _step(program, {0: 1})
    held = {getattr(program.buffers, name).data_ptr() for name in K7Buffers.__slots__}
    survivors = [tensor for made in mode.made if (tensor := made()) is not None and tensor.data_ptr() not in held]
    assert mode.made
    assert not survivors


class Recorder:
    """A graph that records: replays give what the capture's tensors hold, on the same addresses."""

    records = True

    def __init__(self) -> None:
        self.captures = self.replays = 0

    def capture(self, step: Callable[[], Tensor]) -> None:
        self.captures += 1
        self._step = step
        self._output = step()

    def replay(self) -> Tensor:
        self.replays += 1
        fresh = self._step()
        if fresh is not self._output:
            self._output.copy_(fresh)
        return self._output


def test_a_graph_that_records_is_captured_once_a_bucket_and_fed_by_its_own_logits() -> None:
    made: list[Recorder] = []

    def graph() -> Recorder:
        made.append(Recorder())
        return made[-1]

    workspace = Workspace("step")
    workspace.reserve(K7Buffers.declarations(Bindings(batch=SLOTS, vocab_size=V, pool_rows=3, slots=SLOTS)))
    buffers = K7Buffers.take(workspace)
    buffers.mask_pool.fill_(-1)
    program = K7Program(
        buffers, device=replace(CPU, graph=graph), forward=_forward, batches=(1, 4), real_tokens=V, draft=_draft
    )
    program.warm_up(vocab_size=V, dtype=torch.float32)
    assert [one.captures for one in made] == [1, 1, 1, 1]
    _begin(program, 0, token=2, limit=40)
    tokens = [token for _ in range(4) for token in _step(program, {0: 1})[0]]
    views = program.bucket(1)
    gather(views)  # a turn with prompts runs its forward outside the graph
    program.settle(views, _forward(views.token_ids, views.positions, views.slots))
    tokens += views.verified[0, : int(views.counts[0])].tolist()
    assert tokens == _greedy(2, len(tokens))


def test_plans_are_found_by_operation_and_metadata_and_misses_are_counted() -> None:
    index: PlanIndex[str] = PlanIndex()
    tensor = torch.zeros(4, 6)
    index.declare("settle", [tensor], "plan")
    assert index.find("settle", [torch.ones(4, 6)]) == "plan"
    others = [tensor.t(), tensor[:, :3], tensor.double(), torch.zeros(8, 6)[::2]]
    assert [index.find("settle", [other]) for other in others] == [None] * 4
    assert index.find("forward", [tensor]) is None
    assert index.misses == {"settle": 4, "forward": 1}
    with pytest.raises(ValueError, match="settle: declared twice"):
        index.declare("settle", [tensor], "another")
