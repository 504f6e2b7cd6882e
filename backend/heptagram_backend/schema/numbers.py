"""Numbers: bounds are made exact and inclusive where possible, and always rounded inwards.

XGrammar writes bounded numbers without an exponent and with at most six decimals, and reads bounds as 64-bit integers
or doubles; within the limits below its rules hold exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from math import gcd
from typing import Any

from heptagram_backend.schema.place import Place

_INT_LIMIT = 2**62
_FLOAT_LIMIT = 10**15
_EXACT_LIMIT = 10**9  # below it a double tells two numbers of six decimals apart
_MULTIPLES = 1_000
_STEPS = 1_000
_ODD_STEPS = 100  # without the factors 2 and 5; the grammar of 997 alone compiled for 1.6 s
_STEP = Decimal("0.000001")


def natural(schema: Mapping[str, Any], key: str, place: Place) -> int | None:
    """A count such as ``minLength``; ``None`` when it is absent.

    Raises:
        RequestError: not a whole number from 0 on.
    """
    value = schema.get(key)
    if value is None and key not in schema:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != int(value):
        raise (place / key).invalid("must be a whole number from 0 on")
    return int(value)


def integer(schema: Mapping[str, Any], place: Place) -> dict[str, Any] | None:
    """The enforced form of an integer's keywords; ``None`` when no integer satisfies them."""
    low, high = _integer_bounds(schema, place)
    step = _step(schema, place, whole=True)
    if (low is not None and low > _INT_LIMIT) or (high is not None and high < -_INT_LIMIT):
        raise place.refuse(f"bounds beyond {_INT_LIMIT} are not supported")
    low = None if low is None else max(low, -_INT_LIMIT)
    high = None if high is None else min(high, _INT_LIMIT)
    if low is not None and high is not None and low > high:
        return None
    if step is None or step == 1:
        return _bounded(low, high)
    return _multiples(step, low, high, place / "multipleOf")


def number(schema: Mapping[str, Any], place: Place) -> dict[str, Any] | None:
    """The enforced form of a number's keywords; ``None`` when no number satisfies them."""
    if _step(schema, place, whole=False) is not None:
        return integer(schema, place)
    low, high = _float_bound(schema, place, "minimum"), _float_bound(schema, place, "maximum")
    node: dict[str, Any] = {"type": "number"}
    if low is not None:
        node["exclusiveMinimum" if low[1] else "minimum"] = _plain(low[0])
    if high is not None:
        node["exclusiveMaximum" if high[1] else "maximum"] = _plain(high[0])
    if low is not None and high is not None:
        gap = high[0] - low[0] - (_STEP if low[1] else 0) - (_STEP if high[1] else 0)
        if gap < 0:
            return None
    return node


def _bounded(low: int | None, high: int | None) -> dict[str, Any]:
    bounds = {"minimum": low, "maximum": high}
    return {"type": "integer"} | {key: bound for key, bound in bounds.items() if bound is not None}


def _multiples(step: int, low: int | None, high: int | None, place: Place) -> dict[str, Any] | None:
    if low is None and high is None:
        if step > _STEPS or _without_tens(step) > _ODD_STEPS:
            place.leave(
                f"more than {_STEPS}, or {_ODD_STEPS} without its factors 2 and 5, needs both `minimum` and `maximum`"
            )
            return {"type": "integer"}
        return {"type": "integer", "multipleOf": step}
    if low is None or high is None:
        place.leave("beside one bound it cannot be enforced; give both `minimum` and `maximum`, or neither")
        return _bounded(low, high)
    first, last = -(-low // step), high // step
    if last - first >= _MULTIPLES:
        place.leave(f"more than {_MULTIPLES} multiples lie between the bounds; leave the bounds or it out")
        return _bounded(low, high)
    values = [multiple * step for multiple in range(first, last + 1)]
    return {"enum": values} if values else None


def _without_tens(step: int) -> int:
    """``step`` without its factors 2 and 5, which are seen in the last digits."""
    while (shared := gcd(step, 10)) > 1:
        step //= shared
    return step


def _step(schema: Mapping[str, Any], place: Place, *, whole: bool) -> int | None:
    """``multipleOf`` as a whole number; ``whole`` says that only integers are asked for."""
    value = numeric(schema, "multipleOf", place)
    if value is None:
        return None
    if value <= 0:
        raise (place / "multipleOf").invalid("must be greater than 0")
    exact = Fraction(value)
    if exact.denominator == 1:
        return int(exact)
    if whole and exact.numerator == 1:
        return 1
    (place / "multipleOf").leave("a fraction cannot be enforced; use a whole number, or leave it out")
    return None


def _integer_bounds(schema: Mapping[str, Any], place: Place) -> tuple[int | None, int | None]:
    lows: list[int] = []
    highs: list[int] = []
    if (value := numeric(schema, "minimum", place)) is not None:
        lows.append(math.ceil(value))
    if (value := numeric(schema, "exclusiveMinimum", place)) is not None:
        lows.append(math.floor(value) + 1)
    if (value := numeric(schema, "maximum", place)) is not None:
        highs.append(math.floor(value))
    if (value := numeric(schema, "exclusiveMaximum", place)) is not None:
        highs.append(math.ceil(value) - 1)
    return max(lows, default=None), min(highs, default=None)


def _float_bound(schema: Mapping[str, Any], place: Place, key: str) -> tuple[Decimal, bool] | None:
    """The tightest bound of one side, rounded inwards to six decimals, and whether it is exclusive."""
    side = 1 if key == "minimum" else -1
    found: list[tuple[Decimal, bool]] = []
    exclusive_key = "exclusive" + key.capitalize()
    for name, exclusive in ((key, False), (exclusive_key, True)):
        value = numeric(schema, name, place)
        if value is not None:
            found.append(_inwards(value, side, exclusive=exclusive, place=place / name))
    return max(found, key=lambda bound: (bound[0] * side, bound[1]), default=None)


def _inwards(value: int | float, side: int, *, exclusive: bool, place: Place) -> tuple[Decimal, bool]:
    exact = Decimal(repr(value))
    if exact * side > _FLOAT_LIMIT:
        raise place.refuse(f"bounds beyond {_FLOAT_LIMIT} are not supported for numbers")
    if exact * side < -_FLOAT_LIMIT:
        return Decimal(-_FLOAT_LIMIT * side), False
    rounded = exact.quantize(_STEP, rounding=ROUND_CEILING if side > 0 else ROUND_FLOOR)
    if not exclusive or rounded != exact:
        return rounded, False
    return (rounded + side, False) if abs(rounded) >= _EXACT_LIMIT else (rounded, True)


def _plain(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


def numeric(schema: Mapping[str, Any], key: str, place: Place) -> int | float | None:
    """The number that ``key`` holds; ``None`` when it is absent.

    Raises:
        RequestError: no number.
    """
    if key not in schema:
        return None
    value = schema[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        hint = "; write the number itself, as since draft 6" if key.startswith("exclusive") else ""
        raise (place / key).invalid(f"must be a number{hint}")
    return value
