"""JSON Schema before it becomes a grammar: normalise it, refuse what cannot be enforced, bound what it costs.

The compiler behind (XGrammar) ignores many keywords silently. So this is an allow-list: :func:`walk` writes a schema in
a few forms that are enforced exactly, or raises with the place and what to write instead; a request may ask to have
such keywords left to the check of the finished value. It may narrow (never widen) what the caller's schema admits:

- undeclared property: none is generated; an object that declares none is a free map, with ``patternProperties`` of
  names that match, and ``propertyNames`` may limit them;
- item that only an inner unevaluatedItems admits: none is generated where an outer one says otherwise;
- order of properties: the declared one;
- keyword without type: narrows to the type that it speaks of; ``nullable`` is no keyword, null stays out;
- integer as 1.0: written without the fraction, as ``1``;
- exponent or decimals of a bounded number: no exponent and at most six decimals;
- more digits than a number may have: 32 on each side of the point, and an exponent of three; of a bounded integer at
  most 62 bits, of a multiple fewer digits where the step is large;
- escape in a bounded string: under a ``pattern``, ``format`` or length no ``\\u`` escapes; of lengths beyond a few,
  no escapes at all;
- length beyond the limit: a larger ``maxLength`` or ``maxItems`` is lowered to :class:`SchemaLimits`;
- character beyond ASCII in a class of a pattern: only those that all engines read alike;
- rarer spelling of a format: the common forms of :mod:`heptagram_backend.schema.formats`;
- enum or const in another spelling: each value as it is listed, its properties in that order;
- marker of DSML in a raw string: formats that write strings as they are cannot carry their own markup in them.

The result is for the grammar alone: its patterns speak about JSON text, not about values; ``raw`` beside them keeps
``pattern``, ``minLength`` and ``maxLength`` of the value, for formats that write strings as they are. Validate finished
values with :func:`checkable` of the caller's own schema.
"""

from __future__ import annotations

from typing import Any

from heptagram_backend.schema.checking import checkable
from heptagram_backend.schema.endless import endless
from heptagram_backend.schema.keywords import ANY_TYPE, OBJECT
from heptagram_backend.schema.limits import Budget, SchemaLimits
from heptagram_backend.schema.place import Place, Unenforced
from heptagram_backend.schema.plain import require_plain
from heptagram_backend.schema.prune import prune
from heptagram_backend.schema.walker import Walker

__all__ = ["Budget", "SchemaLimits", "Unenforced", "checkable", "walk", "walk_parameters"]


def walk(schema: Any, param: str, budget: Budget | None = None, unenforced: Unenforced = "refuse") -> dict[str, Any]:
    """The enforced form of ``schema``, which the request field ``param`` holds.

    Args:
        schema: what the caller declared, as parsed JSON.
        param: the request field, for errors.
        budget: the request's; several schemas of one request share it.
        unenforced: what becomes of a keyword that the grammar cannot hold. With ``validate`` the result may admit
            more than the caller's schema, and only :func:`checkable` decides; nothing else is admitted than what it
            can decide.

    Raises:
        RequestError: ``unsupported_schema``, ``invalid_value`` (no JSON Schema) or a limit's code, with the place.
    """
    place = Place(param, unenforced=unenforced)
    budget = budget or Budget()
    require_plain(schema, place)
    if (loop := endless(schema, place, Budget(budget.limits))) is not None:
        raise loop.refuse("a `$ref` leads back to itself without an object or array in between; correct it")
    walker = Walker(schema, place, budget)
    root = walker.run()
    pruned = prune(root, walker.definitions)
    if pruned is None:
        where, reason = walker.dead_ends[0] if walker.dead_ends else (place, "every value would have to be endless")
        raise where.refuse(f"{reason}, so no value satisfies the schema; correct it")
    root, definitions = pruned
    return root | ({"$defs": definitions} if definitions else {})


def walk_parameters(
    schema: dict[str, Any], param: str, budget: Budget | None = None, unenforced: Unenforced = "refuse"
) -> dict[str, Any]:
    """The enforced form of a tool's ``parameters``: an object, and without declared properties the empty one.

    Raises:
        RequestError: as :func:`walk`, and where the root may be something else than an object.
    """
    if schema.keys().isdisjoint((OBJECT | ANY_TYPE) - {"type"}):
        schema = {**schema, "type": schema.get("type", "object"), "properties": {}}
    walked = walk(schema, param, budget, unenforced)
    if not _is_object(walked, walked.get("$defs", {})):
        raise Place(param).refuse('the parameters of a tool must be an object; write "type": "object"')
    return walked


def _is_object(node: dict[str, Any], definitions: dict[str, Any]) -> bool:
    """Do all branches at the root admit objects only? References are followed; they are not circular."""
    if "$ref" in node:
        return _is_object(definitions[node["$ref"].removeprefix("#/$defs/")], definitions)
    if "anyOf" in node:
        return all(_is_object(branch, definitions) for branch in node["anyOf"])
    values = [node["const"]] if "const" in node else node.get("enum")
    return all(isinstance(value, dict) for value in values) if values is not None else node.get("type") == "object"
