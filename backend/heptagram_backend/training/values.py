"""What the arguments of own tools are filled with: a kind can be declared, drawn and written into a sentence.

=======================  ================================================
kind                     value
=======================  ================================================
``city``, ``file``, ...  one of a list of ``values.yaml``
``1..9``, ``0.5..9.5``   a whole number, one with a decimal
``a|b|c``                one of these words
``bool``                 a boolean; the sentence has words for both
``date``, ``time``       ``2025-03-09``, ``14:30``
``email``, ``phone``     made up
``id``                   such as ``K-2041``
``[kind]``               a list of two or three different ones
``{name: kind}``         an object
``{each, said}``         a list of objects, each written as ``said``
=======================  ================================================
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml

Kind = Any

_RANGE: Final = re.compile(r"(-?[\d.]+)\.\.(-?[\d.]+)")
_QUOTED: Final = ("title", "message", "phrase", "commit")
_DESCRIBED: Final = {
    "date": "Date as YYYY-MM-DD",
    "time": "Time of day as HH:MM",
    "email": "Email address",
    "phone": "Phone number",
    "id": "Identifier",
    "bool": "Whether this is wanted",
}


@cache
def read_data(name: str) -> Mapping[str, Any]:
    """A YAML file that comes with this package."""
    data: Mapping[str, Any] = yaml.safe_load((files(__package__) / "data" / name).read_text(encoding="utf-8"))
    return data


def declared(kind: Kind) -> dict[str, Any]:
    """The JSON Schema of a kind."""
    if isinstance(kind, list):
        return {"type": "array", "items": declared(kind[0])}
    if isinstance(kind, Mapping):
        if "each" in kind:
            return {"type": "array", "items": declared(kind["each"])}
        properties = {name: declared(child) for name, child in kind.items()}
        return {"type": "object", "properties": properties, "required": list(properties)}
    if kind == "bool":
        return {"type": "boolean"}
    if match := _RANGE.fullmatch(kind):
        return {"type": "number" if "." in match[1] else "integer"}
    if "|" in kind:
        return {"type": "string", "enum": kind.split("|")}
    return {"type": "string"}


def described(name: str, kind: Kind) -> str:
    """A few words about a parameter."""
    if isinstance(kind, str) and kind in _DESCRIBED:
        return _DESCRIBED[kind]
    words = name.replace("_", " ")
    if isinstance(kind, str) and (match := _RANGE.fullmatch(kind)):
        return f"The {words}, {match[1]} to {match[2]}"
    return f"The {words}"


def drawn(kind: Kind, dice: random.Random) -> Any:
    """A value of a kind."""
    if isinstance(kind, list):
        return _several(kind[0], dice)
    if isinstance(kind, Mapping):
        if "each" in kind:
            return _several(kind["each"], dice)
        return {name: drawn(child, dice) for name, child in kind.items()}
    if kind == "bool":
        return dice.random() < 0.5
    if match := _RANGE.fullmatch(kind):
        if "." in match[1]:
            return round(dice.uniform(float(match[1]), float(match[2])), dice.choice((1, 1, 2)))
        return dice.randint(int(match[1]), int(match[2]))
    if kind in read_data("values.yaml"):
        return dice.choice(read_data("values.yaml")[kind])
    return _MADE[kind](dice) if kind in _MADE else dice.choice(kind.split("|"))


def _several(kind: Kind, dice: random.Random) -> list[Any]:
    values: list[Any] = []
    for _ in range(8):
        value = drawn(kind, dice)
        values += [value] if value not in values else []
    return values[: dice.choice((2, 2, 3))]


def said(value: Any, kind: Kind, dice: random.Random) -> str:
    """A value as a sentence has it."""
    if isinstance(kind, Mapping) and "each" in kind:
        return _enumerated([filled(kind["said"], item, kind["each"], dice) for item in value])
    if isinstance(value, list):
        return _enumerated([said(item, kind[0], dice) for item in value])
    return f'"{value}"' if kind in _QUOTED and dice.random() < 0.4 else str(value)


def filled(template: str, values: Mapping[str, Any], kinds: Mapping[str, Kind], dice: random.Random) -> str:
    """A template with its slots written: ``{name}``, ``{object.name}``, ``{flag:words if true|words if false}``."""

    def written(match: re.Match[str]) -> str:
        name, _, words = match[1].partition(":")
        value: Any = values
        kind: Any = kinds
        for step in name.split("."):
            value, kind = value[step], kind[step]
        return words.split("|")[not value] if words else said(value, kind, dice)

    return re.sub(r"\{([^}]*)\}", written, template)


def _enumerated(texts: list[str]) -> str:
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def _email(dice: random.Random) -> str:
    values = read_data("values.yaml")
    first = str(dice.choice(values["person"])).split()[0].lower().strip(".")
    return (
        f"{first}{dice.choice(('', '.b', '42', '_k'))}@{dice.choice(('example.com', 'mail.example.org', 'acme.test'))}"
    )


_MADE: Final[Mapping[str, Callable[[random.Random], str]]] = {
    "date": lambda dice: f"20{dice.randint(23, 27)}-{dice.randint(1, 12):02d}-{dice.randint(1, 28):02d}",
    "time": lambda dice: f"{dice.randint(6, 22):02d}:{dice.choice((0, 15, 30, 45)):02d}",
    "email": _email,
    "phone": lambda dice: dice.choice(("555-{:04d}", "+47 900 {:05d}", "0171 {:07d}")).format(dice.randrange(10_000)),
    "id": lambda dice: f"{dice.choice('ABCKMTX')}{dice.choice(('-', '', '-'))}{dice.randint(10, 99999)}",
}
