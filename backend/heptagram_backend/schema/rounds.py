"""Counted groups whose rounds run into each other: a grammar would have to follow every way to count them.

``([a-z]+ ?){1,16}`` reads ``hello`` as one round or as five: a mask of 49,152 tokens takes 0.5 to 4 s.
``([a-z]+ ){1,16}`` takes 11 ms at most, because the blank ends a round.
"""

from __future__ import annotations

from dataclasses import dataclass

from heptagram_backend.schema.charset import Ranges, intersection, union
from heptagram_backend.schema.regex import Chars, Choice, Node, PatternError, Repeat, Sequence


@dataclass(frozen=True, slots=True)
class _Edges:
    """``first`` may begin a match; ``further`` may go on behind one that is complete already."""

    empty: bool
    first: Ranges = ()
    further: Ranges = ()


def require_distinct_rounds(tree: Node) -> None:
    """Refuse counted groups that are expensive beyond use.

    Raises:
        PatternError: one round of a counted group may end inside another.
    """
    _edges(tree)


def _edges(tree: Node) -> _Edges:
    if isinstance(tree, Chars):
        return _Edges(False, tree.ranges)
    if isinstance(tree, Sequence):
        whole = _Edges(True)
        for item in tree.items:
            whole = _joined(whole, _edges(item))
        return whole
    if isinstance(tree, Choice):
        options = [_edges(option) for option in tree.options]
        return _Edges(
            any(option.empty for option in options),
            union(*(option.first for option in options)),
            union(*(option.further for option in options)),
        )
    assert isinstance(tree, Repeat), "anchors are read by the parser"
    return _repeated(tree)


def _joined(left: _Edges, right: _Edges) -> _Edges:
    return _Edges(
        left.empty and right.empty,
        union(left.first, right.first) if left.empty else left.first,
        union(left.further, right.first, right.further) if right.empty else right.further,
    )


def _repeated(tree: Repeat) -> _Edges:
    item = _edges(tree.item)
    several = tree.high is None or tree.high > 1
    counted = tree.low > 1 or (tree.high or 0) > 1
    blurred = item.first if item.empty else intersection(item.first, item.further)
    if counted and blurred and not isinstance(tree.item, Chars):
        raise PatternError(
            "the rounds of a counted group run into each other; let each end with a character that cannot go on "
            "inside it, such as (?:[a-z]+ ){1,9} instead of (?:[a-z]+ ?){1,9}"
        )
    varies = tree.high is None or tree.high > tree.low
    further = union(item.further, item.first) if several and varies else item.further
    return _Edges(item.empty or tree.low == 0, item.first, further)
