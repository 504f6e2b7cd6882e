"""Character classes as we write them, character by character: XGrammar compiles some ranges wrongly."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from heptagram_backend.caller_grammar import class_of
from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.schema.charset import EVERYTHING, Ranges, complement, intersection, of, union
from tests.formats.smollm2 import factory

BORDERS = (0x7F, 0x7FF, 0xFFF, 0xCFFF, 0xD7FF, 0xDFFF, 0xEFFF, 0xFFFF, 0x3FFFF, 0xFFFFF, 0x10FFFF)
CLASSES: list[Ranges] = [
    intersection(EVERYTHING, complement(of("｜"))),
    intersection(EVERYTHING, complement(of("漢"))),
    ((0x80, 0x85), (0x123, 0x7ABC), (0xD123, 0xD456), (0x10123, 0x50000)),
    ((0x81, 0x133), (0x145, 0x201), (0x800, 0x801), (0x50000, 0xA1234), (0xB0000, 0x10FFFE)),
    ((0x7E, 0x2345), (0x3FFF, 0x4000), (0x5000, 0xD7FF), (0xE000, 0xE001), (0xFFFE, 0x10001)),
]


def drawn(seed: int) -> Ranges:
    dice = random.Random(seed)
    tops = (0x800, 0x10000, 0x110000)
    points = sorted(dice.randrange(0x80, dice.choice(tops)) for _ in range(8))
    return intersection(union(tuple(zip(points[::2], points[1::2], strict=True))), EVERYTHING)


def wrong(ranges: Ranges, characters: Iterable[int]) -> list[str]:
    """What the class takes and should not, or should and does not."""
    grammar = factory().matcher(ConstraintSpec("ebnf", f'root ::= {class_of(ranges)} "!"\n'))
    found = []
    for code in characters:
        accepted = grammar.accept_text(f"{chr(code)}!".encode())
        if accepted:
            grammar.rollback(1)
        if accepted != any(low <= code <= high for low, high in ranges):
            found.append(hex(code))
    grammar.close()
    return found


def near(ranges: Ranges) -> set[int]:
    points = [*BORDERS, *(point for pair in ranges for point in pair)]
    around = {p + d for p in points for d in (*range(-3, 4), -0x1000, -0x40, 0x40, 0x1000)}
    return {*around, *range(0, 0x110000, 0x371)} & {*range(0xD800), *range(0xE000, 0x110000)}


@pytest.mark.parametrize("ranges", [*CLASSES, *map(drawn, range(20))])
def test_a_class_takes_its_characters_and_no_others(ranges: Ranges) -> None:
    assert wrong(ranges, sorted(near(ranges))) == []


@pytest.mark.full
@pytest.mark.parametrize("ranges", [*CLASSES, *map(drawn, range(100, 110))])
def test_all_characters(ranges: Ranges) -> None:
    assert wrong(ranges, [*range(0xD800), *range(0xE000, 0x110000)]) == []
