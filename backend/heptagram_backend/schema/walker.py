"""The walk over one schema. It writes a smaller schema that XGrammar enforces exactly, or refuses.

What comes out holds only these forms, none with siblings: ``{}``; a ``type`` with its own checked keywords; ``const``
or ``enum``; ``anyOf``; ``$ref`` to ``#/$defs/dN``. Every value that it admits is valid for the caller's schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any, Final

from heptagram_backend.schema import containers, numbers
from heptagram_backend.schema.conditions import CONDITIONS, Rewritten, without_conditions
from heptagram_backend.schema.disjoint import branch, exclusive
from heptagram_backend.schema.enums import enumerated, listed_in
from heptagram_backend.schema.keywords import TYPES, assertions, type_of, types
from heptagram_backend.schema.limits import Budget
from heptagram_backend.schema.merge import UNEVALUATED, closes_over, merge
from heptagram_backend.schema.nodes import Node
from heptagram_backend.schema.numbers import natural
from heptagram_backend.schema.place import Place
from heptagram_backend.schema.pointer import follow
from heptagram_backend.schema.strings import string
from heptagram_backend.schema.vet import Vet
from heptagram_wire import errors as codes

_UNIONS: Final = ("anyOf", "oneOf")
_LISTED: Final = frozenset(("enum", "not"))
_PRODUCT: Final = 16  # of branches of the unions behind the first one: each is joined into all of the others
NEVER: Final[Node] = {"enum": []}  # nothing satisfies it; removed by `prune`


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
        place = _written_at(schema, place)
        self.budget.node(place, depth)
        if isinstance(schema, bool):
            return {} if schema else self.never(place, "`false` admits nothing")
        if not isinstance(schema, dict):
            raise place.invalid("a schema must be an object, true or false")
        asserted = self._assertions(schema, place)
        if asserted.keys() == {"$ref"}:
            return self._reference(asserted["$ref"], place)
        if asserted.keys() == {"allOf"} and len(_branches(asserted, "allOf", place)) == 1:
            return self.node(asserted["allOf"][0], place / "allOf" / 0, depth + 1)
        flat = self._flat(asserted, place, depth)
        return self.never(place, "the schemas exclude each other") if flat is None else self._union(flat, place, depth)

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

    def _assertions(self, schema: Mapping[str, Any], place: Place) -> dict[str, Any]:
        asserted = assertions(schema, place)
        if asserted.keys().isdisjoint(CONDITIONS):
            return asserted
        return without_conditions(asserted, place, self, exact=not self._counts_evaluated)

    def never(self, place: Place, reason: str) -> Node:
        self.dead_ends.append((place, reason))
        return NEVER

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
            for index, part in enumerate(_branches(asserted, "allOf", place)):
                parts.append((_written_at(part, place / "allOf" / index), part))
        for where, part in parts:
            joined = self._opened(part, where, depth + 1)
            if joined is None or flat is None:
                return None
            flat = self._merged(flat, self._without_unevaluated(joined, where), where)
        return flat

    def _merged(self, left: Mapping[str, Any], right: Mapping[str, Any], place: Place) -> dict[str, Any] | None:
        """Both as one, with the work that long lists make counted."""
        for key in _LISTED & left.keys() & right.keys():
            self.budget.enum(place, len(listed_in(left[key])) + len(listed_in(right[key])), 0)
        return merge(left, right)

    def _without_unevaluated(self, joined: Mapping[str, Any], place: Place) -> dict[str, Any]:
        """A schema that holds beside others. What it evaluates depends on all in it, so the check must read it all."""
        kept = closes_over(joined, place)
        if any(joined[key] is not True for key in joined.keys() - kept.keys()):
            self._vet.read(joined, place)
        return kept

    def _opened(self, schema: Any, place: Place, depth: int) -> dict[str, Any] | None:
        """A whole subschema, flat; ``None`` when nothing satisfies it."""
        if isinstance(schema, bool):
            return {} if schema else None
        if not isinstance(schema, dict):
            raise place.invalid("a schema must be an object, true or false")
        return self._flat(self._assertions(schema, place), place, depth)

    def _union(self, flat: Mapping[str, Any], place: Place, depth: int) -> Node:
        """Read ``anyOf`` or ``oneOf``: what stands beside it, another union too, is joined into each branch."""
        key = "oneOf" if "oneOf" in flat else "anyOf"
        if key not in flat:
            return self._rejoined(flat, place, depth)
        rest = {name: value for name, value in flat.items() if name != key}
        branches = _branches(flat, key, place)
        what = f"branches of `{key}`"
        self.budget.count(place / key, len(branches), self.budget.limits.branches, what, codes.TOO_MANY_BRANCHES)
        places = [_written_at(item, place / key / index) for index, item in enumerate(branches)]
        opened: list[dict[str, Any] | None] = []
        if rest or key == "oneOf":
            for item, where in zip(branches, places, strict=True):
                alone = self._opened(item, where, depth + 1)
                if rest and alone is not None:
                    alone = self._without_unevaluated(alone, where)
                opened.append(None if alone is None else self._merged(rest, alone, where))
        if key == "oneOf":
            self._require_exclusive(flat[key], [item for item in opened if item is not None], place / key)
        if not rest:
            nodes = [self.node(item, where, depth + 1) for item, where in zip(branches, places, strict=True)]
        else:
            nodes = [
                NEVER if merged is None else self._union(merged, where, depth + 1)
                for merged, where in zip(opened, places, strict=True)
            ]
        return either(nodes)

    def _rejoined(self, flat: Mapping[str, Any], place: Place, depth: int) -> Node:
        """No union is left but those that could not be joined before; take up the next one."""
        waiting = list(flat.get("allOf", ()))
        alone = {key: value for key, value in flat.items() if key != "allOf"}
        unions = [part for part in waiting if not part.keys().isdisjoint(_UNIONS)]
        product = 1
        for part in unions:
            product *= max(len(_branches(part, key, place)) for key in _UNIONS if key in part)
            if product > _PRODUCT:
                message = "so many unions or conditions that all hold cannot be enforced; write fewer"
                self.leave(place / next(iter(part)), message, part)
                waiting.remove(part)
        if unions:
            waiting.remove(unions[0])
            rest = {"allOf": waiting} if waiting else {}
            return self._union({**alone, **unions[0], **rest}, place, depth + 1)
        for part in waiting:
            key = next(iter(part))
            self.leave(place / key, f"two `{key}` that both hold cannot be enforced; write one", part)
        return self._typed(alone, place, depth)

    def _require_exclusive(self, written: list[Any], branches: list[dict[str, Any]], place: Place) -> None:
        def resolve(schema: Any) -> Mapping[str, Any]:
            if isinstance(schema, dict) and {"$ref", "allOf"}.isdisjoint(schema):
                return schema
            return self._opened(schema, place, 0) or {}

        read = [branch(item, resolve) for item in branches]
        if not all(exclusive(left, right) for left, right in combinations(read, 2)):
            message = (
                "two branches may hold at once, which `oneOf` forbids; write `anyOf`, or give each branch a "
                "required property with its own `const`"
            )
            self.leave(place, message, {"oneOf": written})

    def _typed(self, flat: Mapping[str, Any], place: Place, depth: int) -> Node:
        if "enum" in flat or "const" in flat:
            values = enumerated(flat, place, self)
            return values or self.never(place, "none of the values fits the other keywords")
        names = types(flat, place)
        if "not" not in flat:
            return either([self._of_type(name, flat, place, depth) for name in names]) if names else {}
        names = names or tuple(name for name in TYPES if name != "integer")
        return either([self._without_listed(name, flat, place, depth) for name in names])

    def _without_listed(self, name: str, flat: Mapping[str, Any], place: Place, depth: int) -> Node:
        """One type, without the values that ``not`` lists."""
        rest = {key: value for key, value in flat.items() if key != "not"}
        kinds = (name, "integer") if name == "number" else (name,)
        listed = [value for value in flat["not"]["enum"] if type_of(value) in kinds]
        if listed and name in ("boolean", "null"):
            return self._typed({"enum": [None] if name == "null" else [False, True], **flat}, place, depth)
        if listed == [""]:
            rest["minLength"] = max(1, natural(flat, "minLength", place) or 0)
        elif listed:
            message = f"`not` of a {name} among many cannot be enforced; list what is allowed instead"
            self.leave(place / "not", message, {"not": {"enum": listed}})
        return self._of_type(name, rest, place, depth)

    def _of_type(self, name: str, flat: Mapping[str, Any], place: Place, depth: int) -> Node:
        found: Node | None
        if name == "object":
            found = containers.object_(flat, place, self, depth)
        elif name == "array":
            found = containers.array(flat, place, self, depth)
        elif name == "string":
            found = string(flat, place, self)
        elif name in ("integer", "number"):
            found = (numbers.integer if name == "integer" else numbers.number)(flat, place)
        else:
            found = {"type": name}
        return self.never(place, f"no {name} satisfies the keywords") if found is None else found


def _written_at(schema: Any, place: Place) -> Place:
    """Where the caller wrote it, for what was made of something else."""
    return schema.place if isinstance(schema, Rewritten) else place


def either(nodes: Iterable[Node]) -> Node:
    """Any of ``nodes``."""
    flat: list[Node] = []
    for node in nodes:
        flat.extend(node["anyOf"] if node.keys() == {"anyOf"} else [node])
    kept = [node for node in flat if node != NEVER]
    return {"anyOf": kept} if len(kept) > 1 else kept[0] if kept else NEVER


def _branches(schema: Mapping[str, Any], key: str, place: Place) -> list[Any]:
    branches = schema[key]
    if not isinstance(branches, list) or not branches:
        raise (place / key).invalid("must be a list of at least one schema")
    return branches


def _pointer(keys: tuple[str, ...]) -> str:
    return "#" + "".join("/" + key.replace("~", "~0").replace("/", "~1").replace("%", "%25") for key in keys)


def _mentions_unevaluated(schema: Any) -> bool:
    children = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    here = isinstance(schema, dict) and not UNEVALUATED.isdisjoint(schema)
    return here or any(map(_mentions_unevaluated, children))
