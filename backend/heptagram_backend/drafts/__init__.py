"""Draft sources by name. ``grammar_forced`` is no drafter of its own: the planner asks the matcher for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from heptagram_backend.drafts.base import Drafter, NoDrafts
from heptagram_backend.drafts.prompt_lookup import PromptLookup
from heptagram_backend.errors import ReleaseError
from heptagram_backend.generation import DraftSource


@dataclass(frozen=True, slots=True)
class DraftPolicy:
    """Which drafter a sequence gets, and whether the grammar's forced text is drafted too."""

    make: Callable[[], Drafter]
    forced: bool


POLICIES: dict[DraftSource, DraftPolicy] = {
    "auto": DraftPolicy(PromptLookup, forced=True),
    "none": DraftPolicy(NoDrafts, forced=False),
    "prompt_lookup": DraftPolicy(PromptLookup, forced=False),
    "grammar_forced": DraftPolicy(NoDrafts, forced=True),
}


def draft_policy(name: DraftSource) -> DraftPolicy:
    """The policy called ``name``.

    Raises:
        ReleaseError: there is no such draft source.
    """
    if name not in POLICIES:
        raise ReleaseError(f"drafts: there is no {name!r}; known are {', '.join(POLICIES)}")
    return POLICIES[name]
