"""K7 through state, program and graphs gives what the step gave before it had any: each input new, verified at once."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from heptagram_backend.engines.parts import Parts
from heptagram_backend.generation import DraftSource, SamplingParams
from heptagram_backend.plan import ROWS, Draft
from heptagram_backend.release import EngineOptions
from heptagram_backend.sequence import Sequence
from heptagram_backend.targets.transformers_target import TransformersTarget
from heptagram_kernels import reference, reference_sampling
from heptagram_kernels.sampling import Sampling
from tests.engine.harness import drive, tiny_checkpoint, tiny_parts
from tests.engine.test_one_answer import _adversary, _requests


@dataclass(frozen=True)
class Loaded:
    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    draft_counts: Tensor
    mask_rows: Tensor

    @property
    def size(self) -> int:
        return len(self.slots)


class Former:
    """No state, no buffers, no graph: everything of a step is made from its plan, and the plain operations verify."""

    def __init__(self, parts: Parts) -> None:
        self._target = parts.target
        self._masks = parts.masks

    def load(self, planned: Seq[tuple[Sequence, Draft]]) -> Loaded:
        def padded(values: Seq[int]) -> list[int]:
            return [*values, *[0] * (ROWS - len(values))]

        return Loaded(
            torch.tensor([padded([one.tokens[-1], *draft.tokens]) for one, draft in planned]),
            torch.tensor([len(one.tokens) - 1 for one, _ in planned]),
            torch.tensor([one.slot for one, _ in planned]),
            torch.tensor([len(draft.tokens) for _, draft in planned]),
            torch.tensor([padded(draft.rows) for _, draft in planned]),
        )

    def mask(self, batch: Loaded, planned: Seq[tuple[Sequence, Draft]]) -> None:
        masked = self.load(planned)
        batch.mask_rows.copy_(masked.mask_rows)
        batch.draft_counts.copy_(masked.draft_counts)

    def forward(self, batch: Loaded) -> Tensor:
        return self._target.forward(batch.token_ids, batch.positions, batch.slots)

    def verify(self, batch: Loaded, logits: Tensor, sampling: Sampling | None) -> list[list[int]]:
        verified, accepted = torch.zeros_like(batch.token_ids), torch.zeros_like(batch.positions)
        arguments = {
            "logits": logits,
            "token_ids": batch.token_ids,
            "draft_counts": batch.draft_counts,
            "mask_pool": self._masks.pool,
            "mask_rows": batch.mask_rows,
            "out_verified": verified,
            "out_accepted": accepted,
        }
        reference.verify_greedy(**arguments)
        if sampling is not None:
            reference_sampling.verify_sampled(**arguments, sampling=sampling)
        return [tokens[: count + 1] for tokens, count in zip(verified.tolist(), accepted.tolist(), strict=True)]


@pytest.fixture(scope="module", params=[("float32", False), ("bfloat16", True)], ids=["float32", "bfloat16, pipelined"])
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    folder = tiny_checkpoint(tmp_path_factory.mktemp("tiny"))
    dtype, pipelined = request.param
    target = TransformersTarget(folder, dtype=dtype, num_slots=8, max_model_len=640)
    options = EngineOptions(mask_pool_rows=128, pipelined=pipelined)
    made = tiny_parts(target, scripts={"scripted": _adversary}, options=options)
    yield made
    made.step.close()
    made.grammars.close()


@pytest.mark.parametrize("drafts", ["none", "prompt_lookup", "grammar_forced", "auto", "scripted"])
@pytest.mark.parametrize("count", [0, 7])
def test_every_drafter_constrained_and_not_greedy_and_sampled(parts: Parts, drafts: DraftSource, count: int) -> None:
    requests = [replace(request, drafts=drafts, num_speculative_tokens=count) for request in _requests()]
    for place in (2, 5):
        requests[place] = replace(requests[place], sampling=SamplingParams(temperature=0.9, top_p=0.9, seed=place))
    now = [drive(parts, batch) for batch in (requests, requests[:3])]
    program = parts.step._inputs._program
    assert program.misses == 0, "a step ran beside its graph"
    inputs = parts.step._inputs
    parts.step._inputs = Former(parts)  # type: ignore[assignment]
    try:
        assert [drive(parts, batch) for batch in (requests, requests[:3])] == now
    finally:
        parts.step._inputs = inputs
