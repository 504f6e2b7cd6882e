r"""A regular expression tree as text for the grammar: a match of the raw JSON text between the quotes of a string.

How a repetition is written decides what a mask costs (measured on 49,152 tokens): ``(?:[raw]|\\["n])*`` fills in 15 µs
and a counted class of raw characters in 5 to 40 µs, but a counted ``(?:[raw]|\\["n]){2,9}`` takes 20 to 200 ms a row.
So a counted repetition of a set that has escapes keeps only its raw characters.

XGrammar 0.2.7 compiles a pattern of ASCII alone by another path, where ``(?:a[0-9]+)?`` also matches ``1`` and a
backslash leads nowhere. ``_NOTHING`` holds a character beyond ASCII that never matches and so keeps off that path. It
also parts directly nested counts: ``(?:x{2}){1,2}`` would be read as ``x{2,4}``.
"""

from __future__ import annotations

from heptagram_backend.schema import charset
from heptagram_backend.schema.regex import Anchor, Chars, Choice, Node, Repeat, Sequence

_NOTHING = "\x80{0}"
_UNROLLED = 3
_COMPILED_STATES = 130  # a longer counted class compiles no slower


def pattern(tree: Node) -> str | None:
    """The ``pattern`` of a whole string, or ``None`` when JSON text cannot hold any match."""
    text = _render(tree)
    return None if text is None else f"^{_NOTHING}{text}$"


def _render(tree: Node) -> str | None:
    if isinstance(tree, Chars):
        return charset.to_json_text(tree.ranges) or None
    if isinstance(tree, Sequence):
        parts = [_render(item) for item in tree.items]
        return None if None in parts else "".join(part for part in parts if part)
    if isinstance(tree, Choice):
        options = [text for option in tree.options if (text := _render(option)) is not None]
        return "(?:" + "|".join(options) + ")" if options else None
    assert isinstance(tree, Repeat)
    return _repeat(tree)


def _repeat(tree: Repeat) -> str | None:
    low, high = tree.low, tree.high
    item = _render(tree.item)
    if item is None or high == 0:
        return "" if low == 0 else None
    if (low, high) == (1, 1):
        return item
    if not isinstance(tree.item, Chars):
        return _repeat_group(item, low, high)
    if (low, high) == (0, 1):
        return f"(?:{item}|)"
    if high is None and low <= _UNROLLED:
        return f"{item}+" if low == 1 else item * low + f"{item}*"
    return (charset.to_json_text(charset.raw(tree.item.ranges)) or item) + _counts(low, high)


def _repeat_group(item: str, low: int, high: int | None) -> str:
    if high is None and low <= 1:
        return f"(?:{item})" + ("+" if low else "*")
    if high == 1:
        return f"(?:{item}|)"
    several = f"(?:{item}{_NOTHING}){_counts(max(low, 1), high)}"
    return several if low else f"(?:{several}|)"


def _counts(low: int, high: int | None) -> str:
    return f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}"


def narrowed(tree: Node, ranges: charset.Ranges) -> Node:
    """The matches that consist of ``ranges`` alone."""
    if isinstance(tree, Chars):
        return Chars(charset.intersection(tree.ranges, ranges))
    if isinstance(tree, Repeat):
        return Repeat(narrowed(tree.item, ranges), tree.low, tree.high)
    if isinstance(tree, Sequence):
        return Sequence(tuple(narrowed(item, ranges) for item in tree.items))
    if isinstance(tree, Choice):
        return Choice(tuple(narrowed(option, ranges) for option in tree.options))
    return tree


def cost(tree: Node) -> int:
    """About how many automaton states the text compiles to."""
    if isinstance(tree, Repeat):
        count = max(tree.low, tree.high or 0, 1)
        return min(count, _COMPILED_STATES) if isinstance(tree.item, Chars) else count * cost(tree.item)
    if isinstance(tree, Sequence | Choice):
        return 1 + sum(map(cost, tree.items if isinstance(tree, Sequence) else tree.options))
    return 1


def counted(tree: Node) -> bool:
    """Does it hold a counted repetition of a large set? Those are the ones that compile for seconds."""
    if isinstance(tree, Repeat):
        if not isinstance(tree.item, Chars):
            return counted(tree.item)
        size = sum(high - low + 1 for low, high in tree.item.ranges)
        return size > 128 and max(tree.low, tree.high or 0) > _UNROLLED
    children = tree.items if isinstance(tree, Sequence) else tree.options if isinstance(tree, Choice) else ()
    return any(map(counted, children))


def lengths(tree: Node) -> tuple[int, int | None]:
    """Fewest and most characters of a match; ``None`` for no bound."""
    if isinstance(tree, Chars):
        return 1, 1
    if isinstance(tree, Repeat):
        low, high = lengths(tree.item)
        most = 0 if high == 0 or tree.high == 0 else None if high is None or tree.high is None else high * tree.high
        return low * tree.low, most
    if isinstance(tree, Sequence):
        pairs = [lengths(item) for item in tree.items]
        most_of_each = [high for _, high in pairs if high is not None]
        return sum(low for low, _ in pairs), sum(most_of_each) if len(most_of_each) == len(pairs) else None
    if isinstance(tree, Choice):
        pairs = [lengths(option) for option in tree.options]
        most_of_each = [high for _, high in pairs if high is not None]
        return min(low for low, _ in pairs), max(most_of_each) if len(most_of_each) == len(pairs) else None
    assert isinstance(tree, Anchor)
    return 0, 0


def with_lengths(tree: Node, low: int, high: int | None) -> Node | None:
    """The matches of ``low`` to ``high`` characters, where that is still simple to write; ``None`` where it is not."""
    fewest, most = lengths(tree)
    if fewest >= low and (high is None or (most is not None and most <= high)):
        return tree
    if isinstance(tree, Sequence) and len(tree.items) == 1:
        tree = tree.items[0]
    if not (isinstance(tree, Repeat) and isinstance(tree.item, Chars)):
        return None
    tops = [bound for bound in (tree.high, high) if bound is not None]
    low, top = max(tree.low, low), min(tops) if tops else None
    return Repeat(tree.item, low, top) if top is None or low <= top else Chars(())
