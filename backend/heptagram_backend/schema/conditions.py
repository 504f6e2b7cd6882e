"""``not``, ``if`` and ``dependent*`` as unions, where what does not hold can be written as a schema too.

``if C then T else E`` is ``(C and T) or (not C and E)``. A condition on the value of a property, the usual kind, has
an opposite that a grammar can hold; where there is none, the keyword is left to the check of the finished value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from heptagram_backend.schema.negation import negated
from heptagram_backend.schema.nodes import Nodes
from heptagram_backend.schema.place import Place
from heptagram_backend.schema.vet import dependencies

CONDITIONS: Final = ("not", "if", "then", "else", "dependentRequired", "dependentSchemas")
_ADVICE: Final = "write the cases as `anyOf`"


class Rewritten(dict[str, Any]):
    """A schema that a keyword of the caller's was turned into; ``place`` is where that keyword stands."""

    def __init__(self, schema: Mapping[str, Any], place: Place) -> None:
        super().__init__(schema)
        self.place = place


def written_at(schema: Any, place: Place) -> Place:
    """Where the caller wrote it, for what was made of something else."""
    return schema.place if isinstance(schema, Rewritten) else place


def without_conditions(schema: Mapping[str, Any], place: Place, walk: Nodes, *, exact: bool) -> dict[str, Any]:
    """``schema`` with each condition in ``allOf`` as what it means; of ``not`` only listed values stay.

    Args:
        schema: known keywords.
        place: where it stands.
        walk: is told what is left to the check; that may raise.
        exact: conditions may be rewritten. What is rewritten declares properties that the original does not, which
            ``unevaluatedProperties`` could see.
    """
    kept = {key: value for key, value in schema.items() if key not in CONDITIONS}
    parts = _dependent(schema, place, walk, exact=exact)
    if "if" in schema:
        parts += _cases(schema, place, walk, exact=exact)
    if "not" in schema:
        here = place / "not"
        opposite = negated(schema["not"], here, walk.budget) if exact else None
        if opposite is None:
            walk.leave(here, "`not` of this cannot be enforced; list what is allowed instead", {"not": schema["not"]})
        elif isinstance(opposite, dict) and opposite.keys() == {"not"}:
            kept["not"] = opposite["not"]
        else:
            parts.append(_placed(opposite, here))
    if not parts:
        return kept
    others = kept.get("allOf", [])
    if not isinstance(others, list):
        raise (place / "allOf").invalid("must be a list of at least one schema")
    return kept | {"allOf": [*others, *parts]}


def _cases(schema: Mapping[str, Any], place: Place, walk: Nodes, *, exact: bool) -> list[Any]:
    opposite = negated(schema["if"], place / "if", walk.budget) if exact else None
    if opposite is None:
        told = {key: schema[key] for key in ("if", "then", "else") if key in schema}
        walk.leave(place / "if", f"`if` cannot be enforced here; {_ADVICE}", told)
        return []
    opposites = opposite["anyOf"] if isinstance(opposite, dict) and opposite.keys() == {"anyOf"} else [opposite]
    cases = [_all([schema["if"], schema.get("then", True)], place / ("then" if "then" in schema else "if"))]
    cases += [
        _all([other, schema.get("else", True)], place / ("else" if "else" in schema else "if")) for other in opposites
    ]
    return [{"anyOf": cases}]


def _all(schemas: list[Any], place: Place) -> Rewritten:
    return Rewritten({"allOf": [_placed(schema, place) for schema in schemas]}, place)


def _placed(schema: Any, place: Place) -> Any:
    return Rewritten(schema, place) if isinstance(schema, dict) else schema


def _dependent(schema: Mapping[str, Any], place: Place, walk: Nodes, *, exact: bool) -> list[Any]:
    needed: dict[str, list[Any]] = {}
    if "dependentRequired" in schema:
        needed |= {
            name: [{"required": [name, *others]}]
            for name, others in dependencies(schema, "dependentRequired", place).items()
            if others
        }
    here = place / "dependentSchemas"
    schemas = schema.get("dependentSchemas", {})
    if not isinstance(schemas, dict):
        raise here.invalid("must be an object that maps names to schemas")
    for name, child in schemas.items():
        needed.setdefault(name, [{"required": [name]}]).append(child)
    if needed and not exact:
        told = {key: schema[key] for key in ("dependentRequired", "dependentSchemas") if key in schema}
        walk.leave(place / next(iter(told)), f"it cannot be enforced here; {_ADVICE}", told)
        return []
    return [{"anyOf": [{"properties": {name: False}}, _all(parts, here / name)]} for name, parts in needed.items()]
