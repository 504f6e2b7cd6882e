r"""JSON grammars as text: read, made safe, and checked for a finite sentence. No grammar library.

XGrammar 0.2.7 writes a JSON Schema as EBNF, one rule a line. A strict server may not generate all that this admits:

- a string with a length admits raw control characters, which no JSON reader takes;
- its negated character classes admit overlong forms and surrogates, so the answer would not be UTF-8;
- it writes U+00B0 as ``\xb0`` but reads ``\xb0C`` as one character;
- ``\ud83d`` may stand alone, numbers may have any number of digits and overflow to infinity;
- a schema that no finite value satisfies compiles without a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from functools import lru_cache
from typing import Final

from heptagram_backend.errors import EngineError

Rules = Mapping[str, str]  # bodies by name; "root" is the start

# Every character of a JSON string that needs no escape. Subtle: the ranges are cut where UTF-8's second byte changes
# its limits; over one wide range the library takes overlong forms and leaves out U+D000 to U+D7FF.
_PLAIN: Final = (
    r"[ !#-\[\]-\x7f\u0080-\u07ff\u0800-\u0fff\u1000-\ucfff\ud000-\ud7ff\ue000-\uefff\uf000-\uffff"
    r"\U00010000-\U0003ffff\U00040000-\U000fffff\U00100000-\U0010ffff]"
)
_CLASSES: Final = {r"[^\0-\x1f\"\\\r\n]": _PLAIN, r"[^\"\\\r\n]": _PLAIN}

_HEX: Final = "[A-Fa-f0-9]"
_INTEGER: Final = '("-" | "") ("0" | [1-9] [0-9]{0, 31})'
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

# A string whose inside is a rule of its own, so that it can have a budget. The look-ahead is only a hint, but with it,
# and written as a recursion, a mask costs 30 microseconds; as a repetition 150, or as much as 120,000.
_BEHIND: Final = r' (=("\"" [ \n\r\t]* [,}\]:]))'
STRING_INSIDE: Final = "basic_text"
SPLIT_STRING: Final = {
    "basic_string": rf'"\"" {STRING_INSIDE} "\""',
    STRING_INSIDE: f"basic_rest{_BEHIND}",
    "basic_rest": rf'("" | {_PLAIN} basic_rest | "\\" basic_escape basic_rest){_BEHIND}',
}

_LITERAL: Final = r'"(?:[^"\\]|\\.)*"'
_CLASS: Final = r"\[(?:[^\]\\]|\\.)*\]"
_NAME: Final = r"[\w.-]+"
_RULE: Final = re.compile(rf"^({_NAME}) ::= (.*)$", re.MULTILINE)
LITERAL_OR_CLASS: Final = re.compile(f"{_LITERAL}|{_CLASS}")
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-f]{2})|.)")
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
    return {name: _safe_body(body) for name, body in rules.items()} | _RULES


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


def is_productive(rules: Rules, root: str = "root", *, json: bool = True) -> bool:
    """Whether ``root`` derives any finite text: a fixed point over the rules.

    With ``json`` those of plain JSON, named ``basic_...``, are known to; a caller's own rules are not.
    """
    known = {name for name in rules if json and name.startswith("basic_")}
    while root not in known:
        found = {name for name, body in rules.items() if name not in known and _Body(body).derives(known)}
        if not found:
            return False
        known |= found
    return True


class _Body:
    """One rule's body, read once from left to right: a sequence is *and*, ``|`` is *or*, a repeat from 0 is true."""

    __slots__ = ("_known", "_token", "_tokens")

    def __init__(self, body: str) -> None:
        tokens = list(_TOKEN.finditer(body))
        if sum(len(token[0]) for token in tokens) != len(body.rstrip()):
            raise EngineError(f"the grammar library writes an unknown form: {body[:80]!r}")
        self._tokens = iter([(token.lastgroup, token[token.lastgroup or 0]) for token in tokens])
        self._known: Set[str] = frozenset()
        self._token: tuple[str | None, str] = (None, "")

    def derives(self, known: Set[str]) -> bool:
        self._known = known
        self._next()
        return self._alternatives()

    def _next(self) -> None:
        self._token = next(self._tokens, (None, ""))

    def _alternatives(self) -> bool:
        value = self._sequence()
        while self._token[0] == "bar":
            self._next()
            value |= self._sequence()
        return value

    def _sequence(self) -> bool:
        value = True
        while self._token[0] not in (None, "bar", "close"):
            value &= self._item()
        return value

    def _item(self) -> bool:
        kind, text = self._token
        self._next()
        if kind == "open":
            value = self._alternatives()
            self._next()
        else:
            value = kind != "rule" or text in self._known
        while self._token[0] == "repeat":
            value |= self._token[1] in "*?" or self._token[1].startswith("{0")
            self._next()
        return value
