"""``limits`` of a release: what one request may be, what its schemas may cost, what compiling them may take."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from heptagram_backend.errors import ReleaseError
from heptagram_backend.requests.limits import RequestLimits
from heptagram_backend.schema.limits import SchemaLimits

# Depths are bounded by the calls that may stand inside each other where schemas and JSON are read.
_MOST: Final[Mapping[str, int]] = {"request.depth": 128, "schema.depth": 48, "grammar.compile_seconds": 600}


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """Of a constraint that is tried in a process of its own before it is compiled, and of all compiled ones."""

    compile_seconds: float = 10.0  # of processor time
    compile_bytes: int = 1 << 30  # of memory
    cache_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    request: RequestLimits = field(default_factory=RequestLimits)  # with those of its schemas
    grammar: GrammarLimits = field(default_factory=GrammarLimits)

    @classmethod
    def parse(cls, sections: Mapping[str, Any]) -> Limits:
        """Read the sections ``request``, ``schema`` and ``grammar``; what is left out is as usual.

        Raises:
            ReleaseError: an unknown section or key, no positive number, or one beyond what is safe.
        """
        _known("limits", sections, ("request", "schema", "grammar"))
        schema = _read(SchemaLimits, sections, "schema")
        request = _read(RequestLimits, sections, "request", schema=schema)
        return cls(request, _read(GrammarLimits, sections, "grammar"))


def _read(kind: Any, sections: Mapping[str, Any], name: str, **given: Any) -> Any:
    values = sections.get(name)
    values = {} if values is None else values
    if not isinstance(values, dict):
        raise ReleaseError(f"limits.{name}: must be a mapping")
    kinds = {spec.name: spec.type for spec in fields(kind) if spec.name not in given}
    _known(f"limits.{name}", values, kinds)
    for key, value in values.items():
        _check(f"{name}.{key}", value, whole=kinds[key] == "int")
    return kind(**values, **given)


def _known(path: str, values: Mapping[str, Any], names: Collection[str]) -> None:
    for key in values:
        if key not in names:
            raise ReleaseError(f"{path}: there is no {key!r}; known are {', '.join(names)}")


def _check(key: str, value: Any, *, whole: bool) -> None:
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not value > 0:
        raise ReleaseError(f"limits.{key}: must be a {'whole ' if whole else ''}number above 0, not {value!r}")
    if value > _MOST.get(key, value):
        raise ReleaseError(f"limits.{key}: must be at most {_MOST[key]}, not {value}")
