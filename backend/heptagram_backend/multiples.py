"""Multiples that end. No grammar library.

XGrammar 0.2.7 writes ``multipleOf`` as one rule a remainder, each leading to ten others, so a number may never end.
Here a rule also knows how many digits may follow it at most. Rules that admit the same are one: with few digits left
most remainders are dead ends, and factors 2 and 5 speak of the last digits only. They are named as the rules of JSON
are, so that a step costs once however many schemas use it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from heptagram_backend.ebnf import MOST_DIGITS, Rules

_RULES: Final = 1_000  # of one step, but for its last layer; they compile in 0.3 s
_LEAST_DIGITS: Final = 9
_REMAINDER: Final = re.compile(r"[\w.-]+_multiple_of_(?P<step>\d+)_mod_(?P<remainder>\d+)")


def end_multiples(rules: Rules) -> Rules:
    """``rules``, as the library prints them, in which a multiple has at most 32 digits, fewer for large steps."""
    kept = {name: body for name, body in rules.items() if not _REMAINDER.fullmatch(name)}
    made: dict[str, _Multiples] = {}

    def entered(match: re.Match[str]) -> str:
        step = match["step"]
        made.setdefault(step, _multiples(int(step)))
        return made[step].names[int(match["remainder"])]

    ended = {name: _REMAINDER.sub(entered, body) for name, body in kept.items()}
    return ended | {name: body for each in made.values() for name, body in each.rules.items()}


@lru_cache(maxsize=16)
def _multiples(step: int) -> _Multiples:
    return _Multiples(step)


class _Multiples:
    """``names`` is by remainder of the digits so far the rule of what may follow."""

    def __init__(self, step: int) -> None:
        self.rules: dict[str, str] = {}
        self._step = step
        self._by_body: dict[str, str] = {}
        self.names: dict[int, str] = {0: self._named('""')}
        more = 1
        while more < _LEAST_DIGITS or (more < MOST_DIGITS and len(self.rules) < _RULES):
            self.names = self._one_digit_more(self.names)
            more += 1

    def _one_digit_more(self, names: Mapping[int, str]) -> dict[int, str]:
        bodies = ((remainder, self._body(remainder, names)) for remainder in range(self._step))
        return {remainder: self._named(body) for remainder, body in bodies if body}

    def _body(self, remainder: int, names: Mapping[int, str]) -> str:
        digits: dict[str, str] = {}
        for digit in "0123456789":
            if name := names.get((remainder * 10 + int(digit)) % self._step):
                digits[name] = digits.get(name, "") + digit
        options = [f"([{several}] {name})" for name, several in digits.items()]
        return " | ".join((['""'] if remainder == 0 else []) + options)

    def _named(self, body: str) -> str:
        name = self._by_body.setdefault(body, f"basic_multiple_of_{self._step}_{len(self._by_body)}")
        self.rules[name] = body
        return name
