r"""JSON grammars as text: read, made safe, and checked for a finite sentence. No grammar library.

XGrammar 0.2.7 writes a JSON Schema as EBNF, one rule a line. A strict server may not generate all that this admits:

- a string with a length admits raw control characters, which no JSON reader takes;
- its negated character classes admit overlong forms and surrogates, so the answer would not be UTF-8;
- it writes U+00B0 as ``\xb0`` but reads ``\xb0C`` as one character;
- ``\ud83d`` may stand alone, numbers may have any number of digits and overflow to infinity;
- what ``$ref`` points to is written out again under another name, numbers and strings too;
- a schema that no finite value satisfies compiles without a word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from math import inf
from typing import Final

from heptagram_backend.errors import EngineError
from heptagram_backend.schema import regex

Rules = Mapping[str, str]  # bodies by name; "root" is the start

# Every character of a JSON string that needs no escape. Subtle: the ranges are cut where UTF-8's second byte changes
# its limits; over one wide range the library takes overlong forms and leaves out U+D000 to U+D7FF.
_PLAIN: Final = (
    r"[ !#-\[\]-\x7f\u0080-\u07ff\u0800-\u0fff\u1000-\ucfff\ud000-\ud7ff\ue000-\uefff\uf000-\uffff"
    r"\U00010000-\U0003ffff\U00040000-\U000fffff\U00100000-\U0010ffff]"
)
_CLASSES: Final = {r"[^\0-\x1f\"\\\r\n]": _PLAIN, r"[^\"\\\r\n]": _PLAIN}

_HEX: Final = "[A-Fa-f0-9]"
MOST_DIGITS: Final = 32
_MORE_DIGITS: Final = MOST_DIGITS - 1
_INTEGER: Final = f'("-" | "") ("0" | [1-9] [0-9]{{0, {_MORE_DIGITS}}})'
# 32 digits and an exponent up to 269 stay below the largest double.
_EXPONENT: Final = r'[eE] ("-" [0-9]{1, 3} | ("" | "+") ([0-9]{1, 2} | "1" [0-9] [0-9] | "2" [0-6] [0-9]))'
_RULES: Final = {
    "basic_escape": (
        rf'[\"\\/bfnrt] | "u" [0-9A-CEFa-cef] {_HEX} {_HEX} {_HEX} | "u" [dD] [0-7] {_HEX} {_HEX}'
        rf' | "u" [dD] [89ABab] {_HEX} {_HEX} "\\u" [dD] [C-Fc-f] {_HEX} {_HEX}'
    ),
    "basic_integer": _INTEGER,
    "basic_number": f'{_INTEGER} ("" | "." [0-9]{{1, 32}}) ("" | {_EXPONENT})',
}

# How numbers are written where they have rules of their own: beside a bound, and behind a `$ref`.
_DIGIT: Final = "(([0-9]))"
_OWN_STRING: Final = r'(("\"" basic_string_sub))'

# A string whose inside is a rule of its own, so that it can have a budget. The look-ahead is only a hint, but with it,
# and written as a recursion, a mask costs 30 microseconds; as a repetition 150, or as much as 120,000.
_BEHIND: Final = r' (=("\"" [ \n\r\t]* [,}\]:]))'
STRING_INSIDE: Final = "basic_text"
SPLIT_STRING: Final = {
    "basic_string": rf'"\"" {STRING_INSIDE} "\""',
    STRING_INSIDE: f"basic_rest{_BEHIND}",
    "basic_rest": rf'("" | {_PLAIN} basic_rest | "\\" basic_escape basic_rest){_BEHIND}',
}

_CONTAINERS: Final = {
    "basic_array": '"[" ("" | basic_any (", " basic_any){{0, {}}}) "]"',
    "basic_object": '"{{" ("" | basic_string ": " basic_any (", " basic_string ": " basic_any){{0, {}}}) "}}"',
}

_LITERAL: Final = r'"(?:[^"\\]|\\.)*"'
_CLASS: Final = r"\[(?:[^\]\\]|\\.)*\]"
_NAME: Final = r"[\w.-]+"
# Literals come first, so that what only looks like digits stays.
_ENDLESS: Final = re.compile(
    rf"(?P<literal>{_LITERAL})|(?P<exponent>\[eE\] {_NAME} {_NAME}\{{1, -1\}})|(?P<digits>\[0-9\]\*)"
    rf"|(?P<rule>{_NAME})\{{(?P<least>\d+), -1\}}"
)
_RULE: Final = re.compile(rf"^({_NAME}) ::= (.*)$", re.MULTILINE)
LITERAL_OR_CLASS: Final = re.compile(f"{_LITERAL}|{_CLASS}")
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-f]{2})|.)")
_CHARACTER: Final = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)|.", re.DOTALL)
_DIGITS: Final = re.compile(r"\d+")
_HUGE: Final = 1e18  # doubled lengths stay finite
_TOKEN: Final = re.compile(
    rf"\s*(?:(?P<terminal>{_LITERAL}|{_CLASS}|Regex\({_LITERAL}[^)]*\))|(?P<repeat>\{{\d+[^}}]*\}}|[*?+])"
    rf"|(?P<rule>{_NAME})|(?P<open>\(=?)|(?P<bar>\|)|(?P<close>\)))"
)


def read(grammar: str) -> Rules:
    """The rules of a grammar as XGrammar prints it."""
    return {match[1]: match[2] for match in _RULE.finditer(grammar)}


def write(rules: Rules, budgets: Mapping[str, str] | None = None) -> str:
    """The rules as text; ``budgets`` says by name what a rule may use up, such as ``max_tokens=9``.

    A budget ends a rule only where the rule may end: one of tokens is passed by what completes a character.
    """
    attributes = {name: f"[{budget}]" for name, budget in (budgets or {}).items()}
    return "".join(f"{name}{attributes.get(name, '')} ::= {body}\n" for name, body in rules.items())


def literal(text: str) -> str:
    """``text`` as a terminal."""
    plain = (char if char.isascii() and char.isprintable() and char not in '"\\' else None for char in text)
    return '"' + "".join(char or rf"\U{ord(text[place]):08x}" for place, char in enumerate(plain)) + '"'


def containers(items: int) -> Rules:
    """The rules of arrays and objects of any kind, with at most ``items`` items."""
    return {name: body.format(items - 1) for name, body in _CONTAINERS.items()}


def renamed(body: str, name: Callable[[str], str]) -> str:
    """``body`` with ``name`` applied to each rule that it refers to."""
    return _TOKEN.sub(lambda token: f" {name(token['rule'])}" if token["rule"] else token[0], body)


def harden(rules: Rules) -> Rules:
    """Rewrite the rules that XGrammar made of a JSON Schema so that they admit nothing but well-formed UTF-8 JSON.

    Raises:
        EngineError: the rules are not of the known form (another library version).
    """
    if missing := _RULES.keys() - rules.keys():
        raise EngineError(
            f"the grammar library writes no rule {', '.join(sorted(missing))}; install the pinned version"
        )
    digits = frozenset(name for name, body in rules.items() if body == _DIGIT)
    safe = {name: _limited(_safe_body(body), digits) for name, body in rules.items()}
    strings = {name: "basic_string" for name, body in rules.items() if body == _OWN_STRING and name != "basic_string"}
    return safe | strings | _RULES


def _limited(body: str, digits: Collection[str]) -> str:
    """``body`` in which a number has an end; ``digits`` are the rules of one digit."""

    def ended(found: re.Match[str]) -> str:
        if found["exponent"]:
            return _EXPONENT
        if found["digits"]:
            return f"[0-9]{{0, {_MORE_DIGITS}}}"
        if found["rule"] not in digits:
            return found[0]
        return f"{found['rule']}{{{found['least']}, {max(int(found['least']), _MORE_DIGITS)}}}"

    return _ENDLESS.sub(ended, body)


@lru_cache(maxsize=1024)  # most rules of two schemas are the same
def _safe_body(body: str) -> str:
    return LITERAL_OR_CLASS.sub(_safe, body)


def _safe(match: re.Match[str]) -> str:
    text = match[0]
    if not text.startswith("[^"):
        return unambiguous(text)
    if text not in _CLASSES:
        raise EngineError(f"the grammar library writes an unknown character class {text}; install the pinned version")
    return _CLASSES[text]


def unambiguous(terminal: str) -> str:
    r"""``\xb0`` as ``\u00b0``, which ends where it was meant to."""
    return _ESCAPE.sub(lambda escape: rf"\u00{escape[1]}" if escape[1] else escape[0], terminal)


def shortest(rules: Rules, *, plain_json: bool = True) -> Mapping[str, float]:
    """Length of the shortest text that each rule derives, infinite where there is none: a fixed point over the rules.

    With ``plain_json`` those of plain JSON, named ``basic_...``, are known to derive one; a caller's own rules are not.
    """
    known = {name: 1 if plain_json and name.startswith("basic_") else inf for name in rules}
    bodies = [(name, _Body(body)) for name, body in rules.items() if known[name] == inf]
    changed = True
    while changed:
        changed = False
        for name, body in bodies:
            if (length := body.shortest(known)) < known[name]:
                known[name], changed = length, True
        bodies.reverse()  # whichever way the rules refer to each other, two rounds see it
    return known


def longest_forced(rules: Rules, lengths: Mapping[str, float]) -> float:
    """A bound on the text that a position may force, given :func:`shortest`: the most that any part needs."""
    readers = [_Body(body) for name, body in rules.items() if lengths[name] < inf]
    for reader in readers:
        reader.shortest(lengths)
    return max((reader.peak for reader in readers), default=0)


def is_productive(rules: Rules, *, plain_json: bool = True) -> bool:
    """Whether the root derives any finite text."""
    return shortest(rules, plain_json=plain_json).get("root", inf) < inf


class _Body:
    """One rule's body, read from left to right: a sequence is a sum, ``|`` the least, a repeat from 0 is nothing.

    ``peak`` is the largest finite length of any part of it.
    """

    __slots__ = ("_known", "_token", "_tokens", "_units", "peak")

    def __init__(self, body: str) -> None:
        tokens = list(_TOKEN.finditer(body))
        if sum(len(token[0]) for token in tokens) != len(body.rstrip()):
            raise EngineError(f"the grammar library writes an unknown form: {body[:80]!r}")
        self._units = [(token.lastgroup, token[token.lastgroup or 0]) for token in tokens]
        self._tokens = iter(self._units)
        self._known: Mapping[str, float] = {}
        self._token: tuple[str | None, str] = (None, "")
        self.peak: float = 0

    def shortest(self, known: Mapping[str, float]) -> float:
        self._known = known
        self._tokens = iter(self._units)
        self.peak = 0
        self._next()
        return self._alternatives()

    def _next(self) -> None:
        self._token = next(self._tokens, (None, ""))

    def _alternatives(self) -> float:
        value = self._sequence()
        while self._token[0] == "bar":
            self._next()
            value = min(value, self._sequence())
        return value

    def _sequence(self) -> float:
        value: float = 0
        while self._token[0] not in (None, "bar", "close"):
            value += self._item()
        if value < inf:
            value = min(value, _HUGE)
            self.peak = max(self.peak, value)
        return value

    def _item(self) -> float:
        kind, text = self._token
        self._next()
        if kind == "open":
            value = self._alternatives()
            self._next()
        elif kind == "rule":
            value = self._known.get(text, inf)
        else:
            value = _terminal(text)
        while self._token[0] == "repeat":
            value = _times(self._token[1], value)
            self._next()
        return value


def _terminal(text: str) -> float:
    if text.startswith("Regex("):
        pattern = re.match(_LITERAL, text[len("Regex(") :])
        try:
            return _pattern(regex.parse(json.loads(pattern[0]))) if pattern else 1
        except ValueError:  # the library reads patterns that we do not
            return 1
    return len(_CHARACTER.findall(text)) - 2 if text.startswith('"') else 1


def _pattern(tree: regex.Node) -> int:
    match tree:
        case regex.Sequence(items):
            return sum(map(_pattern, items))
        case regex.Choice(options):
            return min(map(_pattern, options), default=0)
        case regex.Repeat(item, low):
            return low * _pattern(item) if low else 0
        case regex.Chars():
            return 1
    return 0  # an anchor


def _times(repeat: str, value: float) -> float:
    low = 0 if repeat in "*?" else 1 if repeat == "+" else int(_DIGITS.findall(repeat)[0])
    return low * value if low else 0
