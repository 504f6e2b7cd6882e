"""The JSON-Schema-Test-Suite: its groups, and why a valid value is not generated: each reason is a documented one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import combinations, permutations
from pathlib import Path
from typing import Any, Final

import pytest

from heptagram_backend.errors import RequestError
from heptagram_backend.schema import walk
from heptagram_backend.schema.keywords import ANNOTATIONS, identity, type_of
from tests.preprocess.oracle import Oracle

needs_suite = pytest.mark.skipif(
    "HEPTAGRAM_TEST_DATA" not in os.environ, reason="HEPTAGRAM_TEST_DATA holds the JSON Schema suite"
)
_FOLDER: Final = "json-schema-test-suite/tests/draft2020-12"
_KEYS: Final = 5  # of objects that are tried in every order


def groups() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each group with the name of its file."""
    for path in sorted((Path(os.environ["HEPTAGRAM_TEST_DATA"]) / _FOLDER).rglob("*.json")):
        for group in json.loads(path.read_text()):
            yield path.stem, group


def why_not_generated(oracle: Oracle, schema: Any, walked: Any, value: Any) -> str:
    """Which narrowing keeps a valid value out: the first whose other spelling of it is generated."""
    for name, others in _SPELLINGS:
        if any(oracle.accepts(walked, other) for other in others(value)):
            return name
    typed = _typed(schema, value)
    if typed is not None and any(oracle.accepts(typed, other) for _, of in _SPELLINGS for other in of(value)):
        return "another type than the one that its keywords speak of"
    text = json.dumps(schema)
    if '"format"' in text and isinstance(value, str):
        return "a format's rarer forms"
    if '"pattern"' in text and isinstance(value, str):
        return "characters on which engines differ, or that only an escape can write"
    if '"unevaluated' in text:
        return "properties that only an inner `unevaluated*` admits"
    if isinstance(value, int | float) and abs(value) >= 2**62:
        return "numbers beyond 62 bits"
    return "unknown"


def _typed(schema: Any, value: Any) -> Any | None:
    """The walked schema with the type of ``value`` written out; ``None`` where it has one."""
    if not isinstance(schema, dict) or "type" in schema:
        return None
    try:
        return walk({"type": type_of(value), **schema}, "p")
    except RequestError:
        return None


def _everywhere(change: Callable[[Any], Iterator[Any]], value: Any) -> Iterator[Any]:
    """``value`` with ``change`` made at any places in it."""
    if isinstance(value, list):
        options: list[Any] = [[]]
        for item in value:
            options = [[*head, other] for head in options for other in _everywhere(change, item)]
    elif isinstance(value, dict):
        options = [{}]
        for key, item in value.items():
            options = [{**head, key: other} for head in options for other in _everywhere(change, item)]
    else:
        options = [value]
    for option in options:
        yield from change(option)


def _whole(value: Any) -> Iterator[Any]:
    yield int(value) if isinstance(value, float) and value.is_integer() else value


def _ordered(value: Any) -> Iterator[Any]:
    if isinstance(value, dict) and len(value) <= _KEYS:
        yield from (dict(pairs) for pairs in permutations(value.items()))
    else:
        yield value


def _fewer_keys(value: Any) -> Iterator[Any]:
    if not isinstance(value, dict) or len(value) > _KEYS:
        yield value
        return
    for size in range(len(value), -1, -1):
        for pairs in combinations(value.items(), size):
            yield from _ordered(dict(pairs))


_SPELLINGS: Final[tuple[tuple[str, Callable[[Any], Iterator[Any]]], ...]] = (
    ("1.0 for an integer", lambda value: _everywhere(_whole, value)),
    ("other order of properties", lambda value: _everywhere(_ordered, value)),
    ("properties that are not declared", lambda value: _everywhere(_fewer_keys, value)),
)


def kind_of(schema: Any, walked: Any) -> str:
    """Was an admitted schema taken as it is, annotations aside, or written in another form?"""
    kept = {key: schema[key] for key in schema if key not in ANNOTATIONS} if isinstance(schema, dict) else schema
    return "as it is" if identity(kept) == identity(walked) else "normalised"
