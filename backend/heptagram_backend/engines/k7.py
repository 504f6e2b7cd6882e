"""Builds the ``k7`` engine: from parts (tests bring a target of their own) or from a release."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from heptagram_kernels.devices import load_device

from heptagram_backend.compile import GrammarCompiler
from heptagram_backend.constraint import GrammarFactory
from heptagram_backend.detokenize import Detokenizer
from heptagram_backend.drafts import DraftPolicy, draft_policy
from heptagram_backend.emit import Emitter
from heptagram_backend.engine import EngineLimits, K7Engine
from heptagram_backend.engine_api import Sink
from heptagram_backend.errors import ReleaseError
from heptagram_backend.formats import load_format
from heptagram_backend.generation import DraftSource, GenerationRequest
from heptagram_backend.grammars import load_grammar_factory
from heptagram_backend.inputs import StepInputs, declarations
from heptagram_backend.masks import MaskPool, all_tokens_row, words_for
from heptagram_backend.plan import ROWS, Planner
from heptagram_backend.release import EngineOptions, Release
from heptagram_backend.scheduler import Scheduler
from heptagram_backend.sequence import Sequence as Running
from heptagram_backend.step import K7Step
from heptagram_backend.targets import load_target
from heptagram_backend.targets.base import Target
from heptagram_backend.tokenizer import CheckpointTokenizer
from heptagram_backend.trigger import TriggerWatch
from heptagram_backend.validate import CallValidator
from heptagram_kernels.layout import K7_LAYOUT
from heptagram_kernels.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the engine knows of the tokenizer.

    ``token_bytes[i]`` is the text of token ``i``, ``None`` for control tokens; ``encode`` gives canonical tokens.
    """

    token_bytes: Sequence[bytes | None]
    encode: Callable[[str], list[int]]
    eos_ids: frozenset[int]
    hash: str


def assemble(
    *,
    target: Target,
    vocabulary: Vocabulary,
    factory: GrammarFactory,
    options: EngineOptions,
    version: str = "1",
    policy: Callable[[DraftSource], DraftPolicy] | None = None,
) -> K7Engine:
    """Put an engine together; its thread runs when this returns. ``policy`` replaces the named draft sources."""

    slots, width, rows = target.num_slots, target.vocab_size, options.mask_pool_rows
    workspace = Workspace(device=options.device)
    workspace.reserve(declarations(slots=slots, vocab_size=width, pool_rows=rows))
    workspace.seal()
    inputs = StepInputs(workspace, load_device(options.device).verify_greedy)
    pool = MaskPool(
        rows=rows,
        rows_per_step=slots * ROWS,
        all_tokens=all_tokens_row(len(vocabulary.token_bytes), width),
        upload=inputs.upload,
    )
    wake = threading.Event()
    grammars = GrammarCompiler(factory, wake.set)
    planner = Planner(pool=pool, words=words_for(width), encode=vocabulary.encode)
    return K7Engine(
        target=target,
        step=K7Step(target=target, inputs=inputs, planner=planner, grammars=grammars),
        scheduler=Scheduler(slots=slots),
        grammars=grammars,
        make_sequence=_SequenceMaker(vocabulary, options, policy or draft_policy),
        limits=EngineLimits(version, options.max_queue, options.max_deadline_ms, vocabulary.hash),
        wake=wake,
    )


def build(release: Release, checkpoint: Path, version: str) -> K7Engine:
    """Build the engine of a release over a checkpoint folder.

    Raises:
        ReleaseError: the release was written for another layout or vocabulary, or the checkpoint cannot be run.
    """
    options = release.engine

    try:
        K7_LAYOUT.check(release.k7_layout)
    except ValueError as error:
        raise ReleaseError(str(error)) from error
    tokenizer = CheckpointTokenizer(checkpoint)
    if release.vocabulary not in (None, tokenizer.vocabulary_hash):
        raise ReleaseError(
            f"vocabulary: the release was written for {release.vocabulary}, but the tokenizer of {checkpoint} is "
            f"{tokenizer.vocabulary_hash}"
        )
    token_bytes = tokenizer.token_bytes()
    target = load_target(options, checkpoint)
    vocabulary = Vocabulary(token_bytes, tokenizer.encode, frozenset(tokenizer.eos_ids), tokenizer.vocabulary_hash)
    factory = load_grammar_factory(token_bytes, vocab_width=target.vocab_size, stop_token_ids=tokenizer.eos_ids)
    return assemble(target=target, vocabulary=vocabulary, factory=factory, options=options, version=version)


class _SequenceMaker:
    """Turns a request into a sequence with its drafter, parser and stop tokens."""

    def __init__(
        self, vocabulary: Vocabulary, options: EngineOptions, policy: Callable[[DraftSource], DraftPolicy]
    ) -> None:
        self._vocabulary = vocabulary
        self._options = options
        self._policy = policy

    def __call__(self, id: str, request: GenerationRequest, sink: Sink) -> Running:

        policy = self._policy(request.drafts)
        output = request.output
        emitter = Emitter(
            detokenizer=Detokenizer(self._vocabulary.token_bytes),
            parser=load_format(output.format).parser(output),
            validator=CallValidator(output.schemas),
            stops=request.stop,
            token_ids=request.return_token_ids,
        )
        eos = frozenset() if request.ignore_eos else self._vocabulary.eos_ids
        return Running(
            id=id,
            request=request,
            sink=sink,
            drafter=policy.make(),
            drafts_forced=policy.forced,
            emitter=emitter,
            stop_ids=eos | frozenset(request.stop_token_ids),
            watch=TriggerWatch(request.trigger.text) if request.trigger else None,
        )
