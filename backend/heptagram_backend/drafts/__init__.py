"""Draft sources by name, alone or in order: ``prompt_lookup,dspark``. No torch here; a DSpark drafter is brought along.

``grammar_forced`` is no drafter of its own: the planner asks the matcher for it, before any drafter, because what the
grammar forces is certain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from heptagram_backend.drafts.base import Drafter, InOrder, NoDrafts
from heptagram_backend.drafts.prompt_lookup import PromptLookup
from heptagram_backend.errors import ReleaseError
from heptagram_backend.generation import DraftSource

SOURCES: Final = ("prompt_lookup", "dspark", "grammar_forced")
ALONE: Final = ("auto", "none")
_SURE_NGRAM: Final = 3
"""From here on prompt lookup is asked before a draft network: shorter matches are right less often than that."""

Make = Callable[[], Drafter]


@dataclass(frozen=True, slots=True)
class DraftPolicy:
    """Which drafter a sequence gets, whether the grammar's forced text is drafted too, and whether it reads masks."""

    make: Make
    forced: bool
    by_mask: bool = False


def fault_of_drafts(name: str) -> str | None:
    """What is wrong with a draft source, or None."""
    names = name.split(",")
    if name in ALONE or (set(names) <= set(SOURCES) and len(set(names)) == len(names)):
        return None
    return f"there is no {name!r}; it is {' or '.join(ALONE)}, or some of {', '.join(SOURCES)}, parted by commas"


def draft_policy(name: DraftSource, dspark: Make | None = None) -> DraftPolicy:
    """The policy called ``name``, where ``dspark`` makes the drafter of that name.

    Raises:
        ReleaseError: there is no such draft source.
    """
    fault = fault_of_drafts(name)
    if fault:
        raise ReleaseError(f"drafts: {fault}")
    if name == "auto":
        name = "prompt_lookup,dspark,grammar_forced" if dspark else "prompt_lookup,grammar_forced"
    names = name.split(",")
    makers = [_maker(one, names, dspark) for one in names if one in ("prompt_lookup", "dspark")]
    return DraftPolicy(_in_order(makers), forced="grammar_forced" in names, by_mask="dspark" in names)


def _maker(name: str, names: list[str], dspark: Make | None) -> Make:
    if name == "prompt_lookup":
        sure = "dspark" in names[names.index(name) :]
        return (lambda: PromptLookup(min_ngram=_SURE_NGRAM)) if sure else PromptLookup
    if dspark is None:
        raise ReleaseError("drafts: this version has no DSpark drafter; its release.yaml names one as engine.drafter")
    return dspark


def _in_order(makers: list[Make]) -> Make:
    match makers:
        case []:
            return NoDrafts
        case [make]:
            return make
        case _:
            return lambda: InOrder(*(make() for make in makers))
