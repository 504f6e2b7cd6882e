"""The parts of a ``k7`` engine, wired together over any target: tests bring one of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from heptagram_backend.beside import beside
from heptagram_backend.blocks import BlockPool
from heptagram_backend.compile import GrammarCompiler
from heptagram_backend.constraint import GrammarFactory
from heptagram_backend.detokenize import Detokenizer
from heptagram_backend.drafts import DraftPolicy, draft_policy
from heptagram_backend.draw import RowSampler
from heptagram_backend.emit import Emitter
from heptagram_backend.engine import EngineLimits, K7Engine
from heptagram_backend.engine_api import Sink
from heptagram_backend.errors import ReleaseError
from heptagram_backend.formats import load_format
from heptagram_backend.generation import DraftSource, GenerationRequest, Trigger
from heptagram_backend.inputs import StepInputs
from heptagram_backend.limits import GrammarLimits
from heptagram_backend.masks import MaskPool, all_tokens_row, words_for
from heptagram_backend.plan import ROWS, Planner
from heptagram_backend.release import EngineOptions
from heptagram_backend.sampling import RejectionSampleMethod, SequenceSampling, check_plan
from heptagram_backend.scheduler import Budget, Scheduler
from heptagram_backend.sequence import Sequence as Running
from heptagram_backend.stats import SequenceStats
from heptagram_backend.step import K7Step
from heptagram_backend.targets.base import OwnsWorkspace, PagedTarget, Target
from heptagram_backend.trial import Trial
from heptagram_backend.trial.setup import Setup
from heptagram_backend.trigger import TriggerWatch
from heptagram_backend.validate import OutputValidator
from heptagram_backend.widths import Widths, make_widths
from heptagram_kernels.buffers import K7Buffers
from heptagram_kernels.devices import load_device
from heptagram_kernels.layout import LOGITS_DTYPES, Bindings
from heptagram_kernels.mask_pool import MaskRows, mask_rows
from heptagram_kernels.program import K7Program
from heptagram_kernels.step import Forward
from heptagram_kernels.workspace import Workspace, lock

_USUAL: Final = GrammarLimits()
_DTYPES: Final = {str(dtype).removeprefix("torch."): dtype for dtype in LOGITS_DTYPES}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the engine knows of the tokenizer.

    ``token_bytes[i]`` is the text of token ``i``, ``None`` for control tokens; ``encode`` gives canonical tokens.
    """

    token_bytes: Sequence[bytes | None]
    encode: Callable[[str], list[int]]
    eos_ids: frozenset[int]
    hash: str


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything of an engine but the thread that drives it."""

    target: Target
    step: K7Step
    grammars: GrammarCompiler
    scheduler: Scheduler
    make_sequence: Callable[[str, GenerationRequest, Sink], Running]
    wake: threading.Event
    masks: MaskRows
    pipelined: bool


def make_parts(
    *,
    target: Target,
    vocabulary: Vocabulary,
    factory: GrammarFactory,
    options: EngineOptions,
    policy: Callable[[DraftSource], DraftPolicy] = draft_policy,
    limits: GrammarLimits = _USUAL,
    widths: Widths | None = None,
) -> Parts:
    """Wire the step to its target, device, workspace and mask pool. ``policy`` says what a draft source is, ``widths``
    how many drafts are verified, if not as ``options`` ask for.

    Raises:
        ReleaseError: the vocabulary or the grammars' masks do not fit the width of the target's logits.
    """
    slots, width, rows = target.num_slots, target.vocab_size, options.mask_pool_rows
    if factory.vocab_width not in (None, width):
        raise ReleaseError(
            f"the grammars' masks are for {factory.vocab_width} tokens, but the target's logits are {width} wide"
        )
    bindings = Bindings(batch=slots, vocab_size=width, pool_rows=rows, slots=slots)
    workspace = Workspace("step", device=options.device)
    workspace.reserve(K7Buffers.declarations(bindings))
    buffers, device = K7Buffers.take(workspace), load_device(options.device)
    masks = mask_rows(buffers.mask_pool, _all_tokens(vocabulary, width), rows_per_step=slots * ROWS)
    program = K7Program(
        buffers,
        device=device,
        forward=_forward(target),
        batches=range(1, slots + 1),
        real_tokens=len(vocabulary.token_bytes),
    )
    program.warm_up(vocab_size=width, dtype=_DTYPES[options.dtype])
    lock(workspace, *([target.workspace] if isinstance(target, OwnsWorkspace) else []))
    inputs = StepInputs(program, masks)
    pool = MaskPool(rows=rows, rows_per_step=slots * ROWS, write=masks.write)
    wake = threading.Event()
    setup = Setup(
        vocabulary.token_bytes,
        width,
        sorted(vocabulary.eos_ids),
        seconds=limits.compile_seconds,
        memory=limits.compile_bytes,
        cache=limits.cache_bytes,
    )
    grammars = GrammarCompiler(factory, wake.set, Trial(setup), width)
    planner = Planner(pool=pool, words=words_for(width), encode=vocabulary.encode)
    sampler = RowSampler(device, cast(RejectionSampleMethod, options.rejection_sample_method))
    step = K7Step(
        target=target,
        inputs=inputs,
        sampler=sampler,
        planner=planner,
        grammars=grammars,
        masking=beside("k7-masks", pipelined=options.is_pipelined),
        widths=make_widths(options) if widths is None else widths,
    )
    make_sequence = _SequenceMaker(vocabulary, policy)
    return Parts(target, step, grammars, _scheduler(target, options), make_sequence, wake, masks, options.is_pipelined)


def assemble(parts: Parts, limits: EngineLimits) -> K7Engine:
    """Start an engine over ``parts``; its thread runs when this returns."""
    return K7Engine(
        target=parts.target,
        step=parts.step,
        scheduler=parts.scheduler,
        grammars=parts.grammars,
        make_sequence=parts.make_sequence,
        limits=limits,
        wake=parts.wake,
        pipelined=parts.pipelined,
    )


def _forward(target: Target) -> Forward:
    """A paged target has one way for steps, prompts beside them or not."""
    return partial(target.mixed, prompts=()) if isinstance(target, PagedTarget) else target.forward


def _all_tokens(vocabulary: Vocabulary, width: int) -> NDArray[np.int32]:
    try:
        return all_tokens_row(len(vocabulary.token_bytes), width)
    except ValueError as error:
        raise ReleaseError(str(error)) from error


def _watch(trigger: Trigger | None) -> TriggerWatch | None:
    return None if trigger is None else TriggerWatch(trigger.text, trigger.after, trigger.opening)


def _scheduler(target: Target, options: EngineOptions) -> Scheduler:
    """Over a target without blocks a slot is one block that holds a whole sequence.

    Raises:
        ReleaseError: an option sizes a cache that the target does not have.
    """
    if isinstance(target, PagedTarget):
        return Scheduler(
            slots=target.num_slots,
            pool=BlockPool(total=target.paging.blocks, block_size=target.paging.block_size),
            budget=_budget(target, options, unit=ROWS, keys_per_row=target.paging.keys_per_row),
            caching=options.enable_prefix_caching,
            decoded=target.paging.decoded,
            tables=target.set_blocks,
        )
    for name in ("kv_cache_blocks", "kv_cache_memory"):
        if getattr(options, name) is not None:
            raise ReleaseError(f"engine.{name}: this model keeps a cache for each sequence, not blocks; leave it out")
    pool = BlockPool(total=target.num_slots, block_size=target.max_model_len + ROWS)
    budget = _budget(target, options, unit=target.prefill_chunk, keys_per_row=target.max_model_len)
    return Scheduler(slots=target.num_slots, pool=pool, budget=budget)


def _budget(target: Target, options: EngineOptions, *, unit: int, keys_per_row: int) -> Budget:
    return Budget(
        options.batched_tokens,
        options.long_prefill_token_threshold,
        chunk=target.prefill_chunk,
        unit=unit,
        keys_per_row=keys_per_row,
    )


class _SequenceMaker:
    """Turns a request into a sequence with its drafter, parser and stop tokens."""

    def __init__(self, vocabulary: Vocabulary, policy: Callable[[DraftSource], DraftPolicy]) -> None:
        self._vocabulary = vocabulary
        self._policy = policy

    def __call__(self, id: str, request: GenerationRequest, sink: Sink) -> Running:
        check_plan(request, vocab_size=len(self._vocabulary.token_bytes))
        policy = self._policy(request.drafts)
        output = request.output
        emitter = Emitter(
            detokenizer=Detokenizer(self._vocabulary.token_bytes),
            parser=load_format(output.format).parser(output),
            validator=OutputValidator(output.schemas, output.answer, may_be_cut=bool(request.stop_token_ids)),
            stops=request.stop,
            token_ids=request.return_token_ids,
        )
        sampling = None if request.sampling.is_greedy else SequenceSampling(request)
        eos = frozenset() if request.ignore_eos else self._vocabulary.eos_ids
        return Running(
            id=id,
            request=request,
            sink=sink,
            drafter=policy.make(),
            drafts_forced=policy.forced,
            drafts_by_mask=policy.by_mask,
            emitter=emitter,
            sampling=sampling,
            stats=SequenceStats(seed=sampling.seed if sampling else None),
            stop_ids=eos | frozenset(request.stop_token_ids),
            watch=_watch(request.trigger),
        )
