r"""Long counts of a character class, written so that masks and matcher agree. No grammar library.

Of a class counted more than 128 times XGrammar 0.2.7 makes masks that allow tokens which its own matcher refuses: in
``[^a-c]{0,200}`` half the vocabulary, in a JSON string with ``maxLength`` those that run over its end. Up to 128 the
two agree. So a long count becomes a chain: ``c{0, 300}`` is ``c{0, 127} | c{128} c{0, 172}``, and the last part is
written the same way. Each text still has one reading.

Masks near the end of a step are the dear ones (20 ms over 49,152 tokens, others 0.07). With steps of 64 a ``maxLength``
of 1000 compiles in 0.9 s instead of 1.9, but its masks take 3.4 ms on average instead of 1.6; compiling is paid once.
"""

from __future__ import annotations

import re
from typing import Final

from heptagram_backend.ebnf import LITERAL_OR_CLASS, Rules

STEP: Final = 128

_CLASS: Final = re.compile(r"\(*(\[(?:[^\]\\]|\\.)*\])\)*")
_COUNT: Final = re.compile(rf"{LITERAL_OR_CLASS.pattern}|(?P<item>[\w.-]+)\{{(?P<low>\d+), (?P<high>-?\d+)\}}")


def split_counts(rules: Rules) -> Rules:
    """``rules``, as the library prints them, without long counts of rules that are one character class."""
    classes = {name: match[1] for name, body in rules.items() if (match := _CLASS.fullmatch(body))}
    chains = _Chains(rules)

    def split(match: re.Match[str]) -> str:
        one, low, high = classes.get(match["item"] or ""), int(match["low"] or 0), int(match["high"] or 0)
        return match[0] if one is None or max(low, high) <= STEP else chains.counted(one, low, high)

    return {name: _COUNT.sub(split, body) for name, body in rules.items()} | chains.rules


class _Chains:
    """The rules that stand for long counts, each made once."""

    def __init__(self, taken: Rules) -> None:
        self.rules: dict[str, str] = {}
        self._prefix = "count"
        while any(name.startswith(self._prefix) for name in taken):
            self._prefix += "_"
        self._numbers: dict[str, int] = {}

    def counted(self, one: str, low: int, high: int) -> str:
        """``one`` from ``low`` to ``high`` times (-1 for no bound), as a body."""
        whole, rest = divmod(low, STEP)
        parts = [self._step(one)] * whole + ([f"{one}{{{rest}, {rest}}}"] if rest else [])
        if high < 0:
            parts.append(f"{one}*")
        elif high > low:
            parts.append(self._up_to(one, high - low))
        return f"({' '.join(parts)})"

    def _name(self, one: str, what: str) -> str:
        return f"{self._prefix}_{self._numbers.setdefault(one, len(self._numbers))}_{what}"

    def _step(self, one: str) -> str:
        name = self._name(one, "step")
        self.rules[name] = f"({one}{{{STEP}, {STEP}}})"
        return name

    def _up_to(self, one: str, most: int) -> str:
        short = self._name(one, "short")
        for left in range(most, 0, -STEP):
            name = self._name(one, f"to_{left}")
            if name in self.rules:
                break
            if left <= STEP:
                self.rules[name] = f"({one}{{0, {left}}})"
                break
            self.rules[short] = f"({one}{{0, {STEP - 1}}})"
            self.rules[name] = f"({short} | {self._step(one)} {self._name(one, f'to_{left - STEP}')})"
        return self._name(one, f"to_{most}")
