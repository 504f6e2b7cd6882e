"""Builds the ``k7`` engine of a release."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from heptagram_backend.drafts import draft_policy
from heptagram_backend.engine import EngineLimits, K7Engine
from heptagram_backend.engines.parts import Vocabulary, assemble, make_parts
from heptagram_backend.errors import ReleaseError
from heptagram_backend.formats import load_format
from heptagram_backend.generation import DraftSource
from heptagram_backend.grammars import load_grammar_factory
from heptagram_backend.release import Release
from heptagram_backend.targets import load_target
from heptagram_backend.tokenizer import CheckpointTokenizer
from heptagram_kernels.layout import K7_LAYOUT


def build(release: Release, checkpoint: Path, version: str) -> K7Engine:
    """Build the engine of a release over a checkpoint folder.

    Raises:
        ReleaseError: the release was written for another layout or vocabulary, or the checkpoint cannot be run.
    """
    options = release.engine
    draft_policy(cast(DraftSource, options.drafts))  # an unknown name is refused now, not at the first request
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
    vocabulary = Vocabulary(token_bytes, tokenizer.encode, frozenset(tokenizer.eos_ids), tokenizer.vocabulary_hash)
    bounds = release.limits.grammar
    factory = load_grammar_factory(
        token_bytes,
        vocab_width=target.vocab_size,
        stop_token_ids=tokenizer.eos_ids,
        cache_limit_bytes=bounds.cache_bytes,
    )
    parts = make_parts(target=target, vocabulary=vocabulary, factory=factory, options=options, limits=bounds)
    limits = EngineLimits(
        version, options.max_queue_size, options.max_deadline_ms, vocabulary.hash, options.max_drain_ms
    )
    return assemble(parts, limits)
