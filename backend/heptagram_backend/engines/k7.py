"""Builds the ``k7`` engine of a release."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from heptagram_backend.drafts import draft_policy
from heptagram_backend.drafts.dspark.drafter import load as load_drafter
from heptagram_backend.engine import EngineLimits, K7Engine
from heptagram_backend.engines.parts import Vocabulary, assemble, make_parts
from heptagram_backend.errors import ReleaseError
from heptagram_backend.formats import load_format
from heptagram_backend.grammars import load_grammar_factory
from heptagram_backend.recorded import check_width
from heptagram_backend.release import Release
from heptagram_backend.targets import load_target
from heptagram_backend.tokenizer import CheckpointTokenizer
from heptagram_kernels.layout import K7_LAYOUT


def build(release: Release, checkpoint: Path, version: str) -> K7Engine:
    """Build the engine of a release over a checkpoint folder.

    Raises:
        ReleaseError: the release was written for another layout, vocabulary or width, or the checkpoint cannot be run.
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
    token_bytes = tokenizer.token_bytes(load_format(release.format).markers)
    target = load_target(options, checkpoint)
    check_width(release.vocabulary_width, target.vocab_size)
    drafter = load_drafter(options, checkpoint, target)
    policy = partial(draft_policy, dspark=drafter.make if drafter else None)
    policy(options.drafts)  # what is not there is refused now, not at the first request
    vocabulary = Vocabulary(token_bytes, tokenizer.encode, frozenset(tokenizer.eos_ids), tokenizer.vocabulary_hash)
    bounds = release.limits.grammar
    factory = load_grammar_factory(
        token_bytes,
        vocab_width=target.vocab_size,
        stop_token_ids=tokenizer.eos_ids,
        cache_limit_bytes=bounds.cache_bytes,
    )
    parts = make_parts(
        target=target, vocabulary=vocabulary, factory=factory, options=options, policy=policy, limits=bounds
    )
    limits = EngineLimits(
        version, options.max_queue_size, options.max_deadline_ms, vocabulary.hash, options.max_drain_ms
    )
    return assemble(parts, limits)
