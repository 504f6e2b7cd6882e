"""The walk over one schema. It writes a smaller schema that XGrammar enforces exactly, or refuses.

What comes out holds only these forms, none with siblings: ``{}``; a ``type`` with its own checked keywords; ``const``
or ``enum``; ``anyOf``; ``$ref`` to ``#/$defs/dN``. Every value that it admits is valid for the caller's schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from heptagram_backend.schema.conditions import CONDITIONS, without_conditions, written_at
from heptagram_backend.schema.enums import listed_in
from heptagram_backend.schema.keywords import assertions
from heptagram_backend.schema.limits import Budget
from heptagram_backend.schema.merge import UNEVALUATED, closes_over, merge
from heptagram_backend.schema.nodes import NEVER, Node
from heptagram_backend.schema.place import Place
from heptagram_backend.schema.pointer import follow
from heptagram_backend.schema.unions import branches_of, union
from heptagram_backend.schema.vet import Vet

_LISTED: Final = frozenset(("enum", "not"))


class Walker:
    """One walk. ``definitions`` fills with the targets of references; ``dead_ends`` says where nothing can stand."""

    def __init__(self, root: Any, place: Place, budget: Budget) -> None:
        self.budget = budget
        self.definitions: dict[str, Node] = {}
        self.dead_ends: list[tuple[Place, str]] = []
        self._root = root
        self._place = place
        self._names: dict[tuple[str, ...], str] = {}
        self._vet = Vet(root, budget)
        self._counts_evaluated = _mentions_unevaluated(root)

    def run(self) -> Node:
        """Walk the schema and, one after the other, everything that it refers to."""
        root = self.node(self._root, self._place, 0)
        walked = 0
        while walked < len(self._names):
            keys = list(self._names)[walked]
            place = self._place.at(keys)
            target = self._root if not keys else follow(self._root, _pointer(keys), place)[1]
            self.definitions[self._names[keys]] = self.node(target, place, 0)
            walked += 1
        return root

    def node(self, schema: Any, place: Place, depth: int) -> Node:
        """The enforced form of one subschema."""
        place = written_at(schema, place)
        self.budget.node(place, depth)
        if isinstance(schema, bool):
            return {} if schema else self.never(place, "`false` admits nothing")
        if not isinstance(schema, dict):
            raise place.invalid("a schema must be an object, true or false")
        asserted = self._assertions(schema, place)
        if asserted.keys() == {"$ref"}:
            return self._reference(asserted["$ref"], place)
        if asserted.keys() == {"allOf"} and len(branches_of(asserted, "allOf", place)) == 1:
            return self.node(asserted["allOf"][0], place / "allOf" / 0, depth + 1)
        flat = self._flat(asserted, place, depth)
        return self.never(place, "the schemas exclude each other") if flat is None else union(flat, place, self, depth)

    def leave(self, place: Place, message: str, left: Mapping[str, Any]) -> None:
        """Leave keywords to the check of the finished value.

        Args:
            place: the first of them.
            message: why the grammar cannot hold it, and what to write instead.
            left: the keywords with their values; the schemas in them are looked through.

        Raises:
            RequestError: the request wants them refused, or the check cannot decide them.
        """
        place.leave(message)
        self._vet.read(dict(left), place.at(place.keys[:-1]))

    def never(self, place: Place, reason: str) -> Node:
        """Note why nothing can stand here."""
        self.dead_ends.append((place, reason))
        return NEVER

    def _assertions(self, schema: Mapping[str, Any], place: Place) -> dict[str, Any]:
        asserted = assertions(schema, place)
        if asserted.keys().isdisjoint(CONDITIONS):
            return asserted
        return without_conditions(asserted, place, self, exact=not self._counts_evaluated)

    def _reference(self, reference: Any, place: Place) -> Node:
        keys, _ = follow(self._root, reference, place)
        name = self._names.setdefault(keys, f"d{len(self._names)}")
        return {"$ref": f"#/$defs/{name}"}

    def _flat(self, asserted: Mapping[str, Any], place: Place, depth: int) -> dict[str, Any] | None:
        """Without ``$ref`` and ``allOf``: what they demand is joined in. ``None`` when nothing satisfies all."""
        self.budget.node(place, depth)
        flat: dict[str, Any] | None = {key: asserted[key] for key in asserted if key not in ("$ref", "allOf")}
        parts: list[tuple[Place, Any]] = []
        if "$ref" in asserted:
            keys, target = follow(self._root, asserted["$ref"], place)
            parts.append((place.at(keys), target))
        if "allOf" in asserted:
            for index, part in enumerate(branches_of(asserted, "allOf", place)):
                parts.append((written_at(part, place / "allOf" / index), part))
        for where, part in parts:
            joined = self.opened(part, where, depth + 1)
            if joined is None or flat is None:
                return None
            flat = self.merged(flat, self.without_unevaluated(joined, where), where)
        return flat

    def merged(self, left: Mapping[str, Any], right: Mapping[str, Any], place: Place) -> dict[str, Any] | None:
        """Both as one, with the work that long lists make counted."""
        for key in _LISTED & left.keys() & right.keys():
            self.budget.enum(place, len(listed_in(left[key])) + len(listed_in(right[key])), 0)
        return merge(left, right)

    def without_unevaluated(self, joined: Mapping[str, Any], place: Place) -> dict[str, Any]:
        """A schema that holds beside others. What it evaluates depends on all in it, so the check must read it all."""
        kept = closes_over(joined, place)
        if any(joined[key] is not True for key in joined.keys() - kept.keys()):
            self._vet.read(joined, place)
        return kept

    def opened(self, schema: Any, place: Place, depth: int) -> dict[str, Any] | None:
        """A whole subschema, flat; ``None`` when nothing satisfies it."""
        if isinstance(schema, bool):
            return {} if schema else None
        if not isinstance(schema, dict):
            raise place.invalid("a schema must be an object, true or false")
        return self._flat(self._assertions(schema, place), place, depth)


def _pointer(keys: tuple[str, ...]) -> str:
    return "#" + "".join("/" + key.replace("~", "~0").replace("/", "~1").replace("%", "%25") for key in keys)


def _mentions_unevaluated(schema: Any) -> bool:
    children = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    here = isinstance(schema, dict) and not UNEVALUATED.isdisjoint(schema)
    return here or any(map(_mentions_unevaluated, children))
