"""Strings: ``pattern``, ``format`` and lengths become one regular expression over JSON text.

XGrammar's own length limit lets raw control characters through, its ``pattern`` pastes a quote as it stands (the value
then ends early), and of a pattern beside a length or a format only one holds. None of that is used here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from heptagram_backend.schema.checking import harmless
from heptagram_backend.schema.formats import FORMATS
from heptagram_backend.schema.nodes import Nodes
from heptagram_backend.schema.numbers import natural
from heptagram_backend.schema.place import Place
from heptagram_backend.schema.regex import ANY, Node, PatternError, parse
from heptagram_backend.schema.render import cost, counted, pattern, with_lengths
from heptagram_backend.schema.rounds import with_distinct_rounds
from heptagram_wire import errors as codes

_KNOWN: Final = ", ".join(FORMATS)


def string(schema: Mapping[str, Any], place: Place, walk: Nodes) -> dict[str, Any] | None:
    """The enforced form of a string's keywords; ``None`` when no string satisfies them.

    Its ``pattern`` is about JSON text. ``raw`` keeps what it was made of, for formats that write strings as they are.

    Raises:
        RequestError: a keyword or their combination cannot be enforced.
    """
    low = natural(schema, "minLength", place) or 0
    high = natural(schema, "maxLength", place)
    if high is not None and high < low:
        return None
    source, tree = _language(schema, place, walk)
    if tree is ANY and low == 0 and high is None:
        return {"type": "string"}
    walk.budget.count(
        place / "minLength", low, walk.budget.limits.min_length, "characters at least", codes.STRING_TOO_LONG
    )
    if tree is ANY and high is not None:
        high = max(low, min(high, walk.budget.limits.max_length))
    bounded = with_lengths(tree, low, high)
    if bounded is None:
        place.leave(
            "a length beside this `pattern` or `format` cannot be enforced; put the length into the pattern "
            "(such as ^[a-z]{1,20}$) or leave it out"
        )
        low, high, bounded = 0, None, tree
    walk.budget.pattern(place, cost(bounded))
    text = pattern(bounded)
    if text is None:
        return None
    if counted(bounded):
        walk.budget.bounded_string(place, text)
    raw = {"pattern": source, "minLength": low or None, "maxLength": high}
    return {"type": "string", "pattern": text, "raw": {key: value for key, value in raw.items() if value is not None}}


def _language(schema: Mapping[str, Any], place: Place, walk: Nodes) -> tuple[str | None, Node]:
    """What the grammar holds of ``pattern`` and ``format``: its source, and its tree."""
    written, name = schema.get("pattern"), schema.get("format")
    if name is not None:
        if not isinstance(name, str):
            raise (place / "format").invalid("must be a string")
        if written is not None:
            message = "`pattern` and `format` together cannot be enforced; keep one of them"
            held = "pattern" if name not in FORMATS or not harmless(written) else "format"
            left = "format" if held == "pattern" else "pattern"
            walk.leave(place / left, message, {left: schema[left]})
            return _language({held: schema[held]}, place, walk)
        if name not in FORMATS:
            message = f"format {name[:40]!r} is not known; write a `pattern`, or leave it out (known: {_KNOWN})"
            walk.leave(place / "format", message, {"format": name})
            return None, ANY
        return FORMATS[name], parse(FORMATS[name])
    if written is None:
        return None, ANY
    here = place / "pattern"
    if not isinstance(written, str):
        raise here.invalid("must be a string")
    limit = walk.budget.limits.pattern_characters
    if len(written) > limit:
        raise here.refuse(f"longer than {limit} characters", code=codes.PATTERN_TOO_LARGE)
    try:
        return written, with_distinct_rounds(parse(written))
    except PatternError as error:
        raise here.refuse(f"the pattern cannot be enforced: {error}") from None
