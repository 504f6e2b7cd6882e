"""What finished values are checked against: the caller's schema, without the patterns that could stall the check.

The checker matches patterns by backtracking. A caller could write one that takes ages on a value which the model was
led to write, so only patterns with few repetitions and none inside another are left in. The grammar has enforced the
others; where it does not, they are refused.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from heptagram_backend.schema.keywords import MAPS
from heptagram_backend.schema.regex import Choice, Node, PatternError, Repeat, Sequence, parse

_DATA: Final = frozenset(("const", "enum", "default", "example", "examples", "dependentRequired"))
_MAPS: Final = MAPS | {"$defs", "definitions"}
_LONGEST: Final = 1_024  # characters
_REPETITIONS: Final = 4  # two of them may be the `.*` of a pattern without anchors


def checkable(schema: Any) -> Any:
    """``schema`` for a checker that backtracks; everything but hazardous patterns is as the caller wrote it."""
    if isinstance(schema, list):
        return [checkable(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _DATA:
            kept[key] = value
        elif key in _MAPS and isinstance(value, dict):
            kept[key] = {name: checkable(child) for name, child in value.items()}
        elif key != "pattern" or (isinstance(value, str) and harmless(value)):
            kept[key] = checkable(value)
    return kept


@lru_cache(maxsize=1024)
def harmless(pattern: str) -> bool:
    """Does a checker that backtracks match it in bounded time, and read it as the grammar does?"""
    try:
        return len(pattern) <= _LONGEST and _repetitions(parse(pattern), inside=False) <= _REPETITIONS
    except PatternError:
        return False


def _repetitions(tree: Node, *, inside: bool) -> int:
    """How many repetitions of varying length; one inside another counts as too many."""
    if isinstance(tree, Repeat):
        varies = tree.low != tree.high
        if inside and varies:
            return _REPETITIONS + 1
        return varies + _repetitions(tree.item, inside=inside or tree.high != 1)
    children = tree.items if isinstance(tree, Sequence) else tree.options if isinstance(tree, Choice) else ()
    within = inside and isinstance(tree, Choice)
    return sum(_repetitions(child, inside=inside) for child in children) + (_REPETITIONS + 1) * within
