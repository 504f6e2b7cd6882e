"""The K7 step: up to seven drafts and one bonus row a sequence, verified in one target forward under its masks.

Each row has one token: the argmax under that row's mask, or what is drawn under it with the noise of its position. A
draft is accepted while it equals the token of the row before it (Leviathan et al., "Fast Inference from Transformers
via Speculative Decoding", 2023, in its greedy case, which coupled noise carries over to sampling). Every forward has
eight rows a sequence, drafted or not, so that the kernels' rounding, and with it the output, is the same at every
draft count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from concurrent.futures import Executor
from dataclasses import dataclass, field

import torch
from torch import Tensor

from heptagram_backend.commit import account, commit
from heptagram_backend.compile import GrammarCompiler
from heptagram_backend.draw import RowSampler
from heptagram_backend.errors import EngineError, HeptagramError, contain
from heptagram_backend.inputs import Batch, StepInputs
from heptagram_backend.logprobs import ScoredToken
from heptagram_backend.masks import MaskPool
from heptagram_backend.plan import Draft, Planner
from heptagram_backend.scheduler import Chunk
from heptagram_backend.sequence import Sequence, State
from heptagram_backend.targets.base import PagedTarget, PromptRows, Target
from heptagram_backend.widths import Widths
from heptagram_wire.events import FinishReason


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step did to one sequence: it goes on, it ends with ``reason``, or it alone fails with ``error``."""

    sequence: Sequence
    reason: FinishReason | None = None
    error: HeptagramError | None = None


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What a step found, by place in the batch: the verified tokens, and those of ``scored`` with log probabilities."""

    planned: Seq[tuple[Sequence, Draft]] = ()
    tokens: Seq[Seq[int]] = ()
    scored: Mapping[int, Seq[ScoredToken]] = field(default_factory=dict)
    faults: Seq[Outcome] = ()


Planned = tuple[list[tuple[Sequence, Draft]], list[Outcome]]
"""What is computed, and who failed on the way there."""

_NO_LOGITS = torch.empty(0)


class K7Step:
    def __init__(
        self,
        *,
        target: Target,
        inputs: StepInputs,
        sampler: RowSampler,
        planner: Planner,
        grammars: GrammarCompiler,
        masking: Executor,
        widths: Widths,
    ) -> None:
        self._target = target
        self._paged = target if isinstance(target, PagedTarget) else None
        self._inputs = inputs
        self._sampler = sampler
        self._planner = planner
        self._grammars = grammars
        self._masking = masking
        self._widths = widths

    @property
    def mask_pool(self) -> MaskPool:
        return self._planner.pool

    @property
    def graph_misses(self) -> int:
        return self._inputs.graph_misses

    def run(self, sequences: Seq[Sequence], chunks: Seq[Chunk] = ()) -> list[Outcome]:
        """:meth:`plan`, :meth:`compute` and :meth:`commit` in one."""
        return self.commit(self.compute(self.plan(sequences, chunks), chunks))

    def plan(self, sequences: Seq[Sequence], chunks: Seq[Chunk] = ()) -> Planned:
        """What the forward must know, which has ``chunks`` beside the drafts.

        A fault in planning one of ``sequences`` ends up in its own outcome.
        """
        planned: list[tuple[Sequence, Draft]] = []
        faults: list[Outcome] = []
        for sequence in sequences:
            assert sequence.slot is not None
            sequence.drafter.seat(sequence.slot)  # before any plan: a draft network runs once for all of them
        for sequence in sequences:
            try:
                planned.append((sequence, self._planner.draft(sequence)))
            except Exception as error:  # a drafter's or matcher's fault must not reach the others of the step
                faults.append(Outcome(sequence, error=contain(error, f"the drafts of {sequence.name}")))
        drafts = self._widths.narrowed(planned, beside=sum(len(chunk.tokens) for chunk in chunks))
        return [(sequence, draft) for (sequence, _), draft in zip(planned, drafts, strict=True)], faults

    def compute(self, drafted: Planned, chunks: Seq[Chunk] = (), *, launched: Callable[[], object] = bool) -> Verdicts:
        """One step of all that is planned, and the prompt rows of ``chunks``. Nothing is committed.

        ``launched`` is called last before the forward, when this thread is away from Python for a while. Masks left for
        later are filled under it: a constrained sequence does not hold the others up. Here and in :meth:`plan` neither
        emitters nor sinks are touched, so the step before may still be told.
        """
        planned, faults = drafted
        if not planned and not chunks:
            return Verdicts(faults=faults)
        batch = self._inputs.load(planned)
        unmasked = any(not draft.rows for _, draft in planned)
        filling = self._masking.submit(self._mask, planned) if unmasked else None
        try:
            launched()
            begin = time.perf_counter()
            logits = self._forward(batch, chunks)
        finally:  # a matcher has one owner: this thread again from here on
            filled = filling.result() if filling is not None else None
        if not planned:
            return Verdicts(faults=faults)
        if filled is not None:
            planned, failed = filled
            faults = [*faults, *failed]
        if any(sequence.grammar is not None for sequence, _ in planned):
            self._inputs.mask(batch, planned)
        tokens = self._inputs.verify(batch, logits, self._sampler.arguments(planned, logits.device))
        if not chunks:
            self._widths.computed(drafted[0], time.perf_counter() - begin)
        return Verdicts(planned, tokens, self._sampler.score(planned, batch, logits, tokens), faults)

    def commit(self, verdicts: Verdicts) -> list[Outcome]:
        """Commit to each sequence that lives. A fault of one ends up in its own outcome."""
        faults = [fault for fault in verdicts.faults if fault.sequence.state is not State.DONE]
        failed = {fault.sequence.id for fault in faults}
        steps = enumerate(zip(verdicts.planned, verdicts.tokens, strict=True))
        return faults + [
            self._commit(sequence, draft, tokens, verdicts.scored.get(place, ()))
            for place, ((sequence, draft), tokens) in steps
            if sequence.state is not State.DONE and sequence.id not in failed
        ]

    def close(self) -> None:
        """No step is computed any more."""
        self._masking.shutdown()

    def _forward(self, batch: Batch, chunks: Seq[Chunk]) -> Tensor:
        """Logits [B, 8, V] of the steps; prompt rows share the forward where the target can do that."""
        prompts = [_rows(chunk) for chunk in chunks]
        if self._paged is not None and prompts:
            return self._paged.mixed(*self._inputs.gather(batch), prompts)
        for prompt in prompts:
            self._target.prefill(slot=prompt.slot, start=prompt.start, token_ids=prompt.token_ids)
        return self._inputs.forward(batch) if batch.size else _NO_LOGITS

    def _mask(self, drafted: Seq[tuple[Sequence, Draft]]) -> Planned:
        """Fill what is still to be filled. A sequence that fails keeps its place in the step, whose forward runs."""
        planned: list[tuple[Sequence, Draft]] = []
        faults: list[Outcome] = []
        for sequence, draft in drafted:
            done = draft
            try:
                done = draft if draft.rows else self._planner.mask(sequence, draft)
            except Exception as error:
                faults.append(Outcome(sequence, error=contain(error, f"the masks of {sequence.name}")))
            planned.append((sequence, done))
        return planned, faults

    def _commit(self, sequence: Sequence, draft: Draft, tokens: Seq[int], scored: Seq[ScoredToken]) -> Outcome:
        before = sequence.stats.generated
        try:
            if tokens[-1] < 0:
                raise EngineError("the target gave no usable logits for a row (all masked, or not a number)")
            self._widths.verified(sequence, draft, len(tokens) - 1)
            reason = commit(sequence, tokens, self._grammars, scored)
        except Exception as error:  # nor may a parser's or matcher's
            return Outcome(sequence, error=contain(error, f"the step of {sequence.name}"))
        finally:
            account(sequence, draft, max(0, min(len(tokens), sequence.stats.generated - before) - 1))
        return Outcome(sequence, reason)


def _rows(chunk: Chunk) -> PromptRows:
    assert chunk.sequence.slot is not None
    return PromptRows(chunk.sequence.slot, chunk.sequence.cached, chunk.tokens)
