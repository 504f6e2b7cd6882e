"""What a constraint may cost to compile, read off its text. No grammar library.

The figures were fitted to XGrammar 0.2.7 over tool sets, BFCL and schemas made to be slow, one thread, nothing cached,
a vocabulary of 49,152 tokens: about a millisecond each, rather too much than too little. Only what grows faster than
the text has a term of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.ebnf import LITERAL_OR_CLASS

COSTLY: Final = 200  # from here on it may not keep others waiting
DOUBTFUL: Final = 7_000  # from here on it is tried in a child first
_VOCABULARY: Final = 49_152
_DEEPEST: Final = 200  # levels; the library reads a grammar with one call inside the other

# What is costly -> what to write instead.
ADVICE: Final[Mapping[str, str]] = {
    "the size of the schemas": "constrain fewer tools at once, or simplify their schemas",
    "the depth of the schemas": "flatten them",
    "long `enum`": "list fewer or shorter values",
    "counted lengths of strings": "leave `minLength`, `maxLength` and counts in patterns out, or give all the same one",
    "`minProperties` and `maxProperties`": "leave them out, or declare fewer properties beside them",
    "many properties of one object": "group them into objects",
    "bounds of numbers": "leave `minimum`, `maximum` and `multipleOf` out where they do not matter",
    "rules that can be read in many ways": "write the grammar so that each part ends where the next begins",
}
_SIZE, _DEPTH, _ENUM, _LENGTHS, _COUNTED, _PROPERTIES, _BOUNDS, _READINGS = ADVICE

_COUNT: Final = re.compile(r"\{(\d+)(?:, ?(\d*))?\}")
_BOUND_KEYS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_MULTIPLES: Final = 250.0  # of one step, see multiples.py
_QUANTIFIERS: Final = frozenset("*+?{")


@dataclass(frozen=True, slots=True)
class Estimate:
    """``work`` is about milliseconds; ``worst`` a key of :data:`ADVICE`, the largest part of it."""

    work: float
    worst: str


def estimate(spec: ConstraintSpec, vocabulary: int = _VOCABULARY) -> Estimate:
    """Estimate what ``spec`` costs over a vocabulary of so many tokens. What cannot be read is refused elsewhere."""
    kilobytes = len(spec.source) / 1024
    parts = dict.fromkeys(ADVICE, 0.0) | {_SIZE: 5.5 * kilobytes + 0.02 * kilobytes**2}
    scale = max(1.0, vocabulary / _VOCABULARY)
    if spec.kind in ("structural_tag", "json_schema"):
        _read_schemas(spec.source, parts, scale)
    else:
        _read_grammar(spec.source, parts, scale)
    return Estimate(sum(parts.values()), max(parts, key=lambda part: parts[part]))


def _read_schemas(source: str, parts: dict[str, float], scale: float) -> None:
    try:
        tree = json.loads(source)
    except (ValueError, RecursionError):
        return
    cells = 0
    patterns: set[str] = set()
    steps: set[int] = set()
    for node, depth in _nodes(tree):
        parts[_ENUM] += _alternatives(_listed(node.get("enum")) + _listed(node.get("elements")))
        if isinstance(pattern := node.get("pattern"), str):
            patterns.add(pattern)
        if isinstance(properties := node.get("properties"), dict):
            parts[_PROPERTIES] += 0.003 * len(properties) ** 2
            most = node.get("maxProperties", node.get("minProperties", 0))
            cells += len(properties) * min(len(properties), most if isinstance(most, int) else 0)
        parts[_BOUNDS] += 2.0 * sum(key in node for key in _BOUND_KEYS)
        if isinstance(step := node.get("multipleOf"), int):
            steps.add(step)
        if depth > _DEEPEST:
            parts[_DEPTH] = DOUBTFUL
    parts[_COUNTED] = 0.12 * cells + cells**2 / 48_000
    parts[_LENGTHS] = _lengths(patterns, scale)
    parts[_BOUNDS] += sum(min(3.0 * step, _MULTIPLES) for step in steps)


def _read_grammar(source: str, parts: dict[str, float], scale: float) -> None:
    texts = LITERAL_OR_CLASS.findall(source)
    parts[_ENUM] = _alternatives(sum(map(len, texts)))
    parts[_LENGTHS] = _lengths([source], scale)
    if _has_many_readings(LITERAL_OR_CLASS.sub("", source)):
        parts[_READINGS] = DOUBTFUL


def _listed(values: Any) -> int:
    """Characters of the values of an ``enum``, or of the texts among the elements of a tag."""
    if not isinstance(values, list):
        return 0
    texts = [value.get("value") if isinstance(value, dict) and "value" in value else value for value in values]
    return sum(len(value) if isinstance(value, str) else 8 for value in texts if not isinstance(value, dict))


def _alternatives(characters: int) -> float:
    return characters**2 / 4e6


def _lengths(patterns: set[str] | list[str], scale: float) -> float:
    """The mask tables of a counted class are made for each count up to 256, and shared in part by the next ones."""
    costs = sorted((_counted(pattern) for pattern in patterns), reverse=True)
    return scale * costs[0] + 0.07 * sum(costs[1:]) if costs else 0.0


def _counted(pattern: str) -> float:
    counts = [int(text) for pair in _COUNT.findall(pattern) for text in pair if text.isdecimal()]
    return 8.0 * sum(min(count, 256) for count in counts if count > 16)


def _has_many_readings(bare: str) -> bool:
    """May a grammar without its texts be recursive, or repeat what repeats? A single rule without either cannot."""
    head, _, body = bare.partition("::=")
    if "::=" in body or head.strip() != "root" or re.search(r"[A-Za-z_]", body):
        return True
    repeats = [False]  # of each open bracket: whether something in it is repeated
    inside = False  # whether something in the bracket just closed is
    for character in body:
        if character == "(":
            repeats.append(False)
        elif character == ")" and len(repeats) > 1:
            inside = repeats.pop()
            repeats[-1] |= inside
            continue
        elif character in _QUANTIFIERS:
            if inside:
                return True
            repeats[-1] = True
        inside = inside and character.isspace()
    return False


def _nodes(tree: Any) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Every object in ``tree`` with its depth, without recursion."""
    waiting = [(tree, 0)]
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, dict):
            yield value, depth
            waiting += [(child, depth + 1) for child in value.values()]
        elif isinstance(value, list):
            waiting += [(child, depth + 1) for child in value]
