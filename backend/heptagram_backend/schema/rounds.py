"""Repeated groups whose rounds run into each other: a grammar would have to follow every way to part them.

``([a-z]+ ?){1,16}`` reads ``hello`` as one round or as five: a mask of 49,152 tokens takes 0.5 to 4 s. Without a bound
each character makes the next one slower: 17 ms at the 400th of ``("[^"]*"|[^"]*)*``. ``([a-z]+ ){1,16}`` takes 11 ms at
most, because the blank ends a round.

Many unbounded ones are another way to write one with short rounds: ``(a+)+`` is ``a+``, and ``([a-z]+ ?)+`` is
``([a-z] ?)+``. They are written so; the others are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from heptagram_backend.schema.charset import Ranges, intersection, union
from heptagram_backend.schema.regex import EMPTY, Chars, Choice, Node, PatternError, Repeat, Sequence


@dataclass(frozen=True, slots=True)
class _Edges:
    """``first`` may begin a match; ``further`` may go on behind one that is complete already."""

    empty: bool
    first: Ranges = ()
    further: Ranges = ()


def with_distinct_rounds(tree: Node) -> Node:
    """The same language, with the rounds of each repeated group apart.

    Raises:
        PatternError: one round of a group may end inside another.
    """
    tree = shortened(tree)
    _edges(tree)
    return tree


def shortened(tree: Node) -> Node:
    """The same language, with short rounds in unbounded repetitions."""
    if isinstance(tree, Sequence):
        return Sequence(tuple(map(shortened, tree.items)))
    if isinstance(tree, Choice):
        return Choice(tuple(map(shortened, tree.options)))
    if not isinstance(tree, Repeat):
        return tree
    if tree.high is not None or tree.low > 1:
        return Repeat(shortened(tree.item), tree.low, tree.high)
    rounds = _choice(_rounds(tree.item))
    if rounds == EMPTY:
        return EMPTY
    return _runs(rounds, least=0 if _may_be_empty(tree.item) else tree.low)


def _runs(rounds: Node, *, least: int) -> Node:
    """``rounds`` without bound, those of one character in runs, which are what the library matches at no cost:
    ``(?:[a-z]|"x")*`` as ``[a-z]*(?:"x"[a-z]*)*``, and ``(?:[a-z] ?)*`` as ``(?:[a-z]+(?: [a-z]+)* ?|)``."""
    if isinstance(rounds, Choice) and isinstance(one := rounds.options[0], Chars):
        others = Choice(rounds.options[1:]) if len(rounds.options) > 2 else rounds.options[1]
        if not intersection(one.ranges, _edges(others).first):
            run = Repeat(one, 0, None)
            further = Sequence((others, run))
            begin = run if least == 0 else Choice((Repeat(one, 1, None), further))
            return Sequence((begin, Repeat(further, 0, None)))
    match rounds:
        case Sequence((Chars() as one, Repeat(part, 0, most) as gap)) if not _may_be_empty(part):
            run = Repeat(one, 1, None)
            whole = Sequence((run, Repeat(Sequence((Repeat(part, 1, most), run)), 0, None), gap))
            return whole if least else Repeat(whole, 0, 1)
    return Repeat(rounds, least, None)


def _rounds(tree: Node) -> Iterator[Node]:
    """Rounds, none of them empty, that make the same texts as those of ``tree`` where they repeat without bound."""
    if isinstance(tree, Choice):
        for option in tree.options:
            yield from _rounds(option)
    elif isinstance(tree, Repeat) and (tree.low <= 1 or _may_be_empty(tree.item)):
        if tree.high != 0:
            yield from _rounds(tree.item)
    elif isinstance(tree, Sequence) and _may_be_empty(tree):
        for item in tree.items:
            yield from _rounds(item)
    elif isinstance(tree, Sequence):
        yield _sequence(tree.items)
    else:
        yield shortened(tree)


def _sequence(items: tuple[Node, ...]) -> Node:
    """A round of several parts. Where only one must be there, it need not repeat: more of it are further rounds."""
    needed = [item for item in items if not _may_be_empty(item)]
    parts = [_choice(_rounds(item)) if len(needed) == 1 and item is needed[0] else shortened(item) for item in items]
    return parts[0] if len(parts) == 1 else Sequence(tuple(parts))


def _may_be_empty(tree: Node) -> bool:
    if isinstance(tree, Repeat):
        return tree.low == 0 or _may_be_empty(tree.item)
    if isinstance(tree, Choice):
        return any(map(_may_be_empty, tree.options))
    return isinstance(tree, Sequence) and all(map(_may_be_empty, tree.items))


def _choice(options: Iterator[Node]) -> Node:
    """Any of ``options``, those of one character as one set; nothing of none."""
    several = list(dict.fromkeys(options))
    sets = [option for option in several if isinstance(option, Chars)]
    kept: list[Node] = [Chars(union(*(one.ranges for one in sets)))] if sets else []
    kept += [option for option in several if not isinstance(option, Chars)]
    return kept[0] if len(kept) == 1 else Choice(tuple(kept)) if kept else EMPTY


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
    blurred = item.first if item.empty else intersection(item.first, item.further)
    if several and blurred and not isinstance(tree.item, Chars):
        raise PatternError(
            "the rounds of a repeated group run into each other; let each end with a character that cannot go on "
            "inside it, such as (?:[a-z]+ ){1,9} instead of (?:[a-z]+ ?){1,9}"
        )
    varies = tree.high is None or tree.high > tree.low
    further = union(item.further, item.first) if several and varies else item.further
    return _Edges(item.empty or tree.low == 0, item.first, further)
