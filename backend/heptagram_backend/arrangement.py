"""Parts that stand in a row, some of which may be missing, as EBNF rules. No grammar library."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

ANY_ORDER = 4  # parts; as many states as they have subsets


def in_order(parts: Sequence[str], optional: Sequence[bool], otherwise: str, name: str) -> dict[str, str]:
    """Rules whose first one, ``name``, is ``parts`` in their order without some of the optional ones.

    ``otherwise`` stands where no part does. Two rules a part: behind another part, and as the first one.
    """
    rules = {name: f"{name}_first_0"}
    for place, (part, may_miss) in enumerate(zip(parts, optional, strict=True)):
        for state in ("first", "next"):
            skipped = f" | {name}_{state}_{place + 1}" if may_miss else ""
            rules[f"{name}_{state}_{place}"] = f"({part} {name}_next_{place + 1}{skipped})"
    return rules | {f"{name}_first_{len(parts)}": otherwise, f"{name}_next_{len(parts)}": '""'}


def any_order(parts: Sequence[str], optional: Sequence[bool], otherwise: str, name: str) -> dict[str, str]:
    """The same in any order: one rule for each set of parts that are still to come."""
    places = range(len(parts))
    rules = {name: _state(name, tuple(places))}
    for size in range(len(parts) + 1):
        for left in combinations(places, size):
            options = [f"{parts[one]} {_state(name, tuple(x for x in left if x != one))}" for one in left]
            if all(optional[one] for one in left):
                options.append(otherwise if size == len(parts) else '""')
            rules[_state(name, left)] = f"({' | '.join(options)})"
    return rules


def _state(name: str, left: tuple[int, ...]) -> str:
    return "_".join([name, "left", *map(str, left)])
