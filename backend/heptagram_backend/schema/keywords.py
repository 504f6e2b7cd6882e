"""The allow-list: which keywords a schema may hold, and what each belongs to. Anything else is refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from heptagram_backend.schema.place import Place

TYPES: Final = ("object", "array", "string", "integer", "number", "boolean", "null")

# Say nothing about which values are valid. `nullable` is OpenAPI's: JSON Schema does not know it, so null stays out.
_ANNOTATIONS: Final = """
    title description default example examples deprecated readOnly writeOnly nullable $schema id $id $comment $anchor
    $dynamicAnchor $vocabulary $defs definitions contentEncoding contentMediaType contentSchema discriminator xml
    externalDocs enumNames enumDescriptions markdownDescription propertyOrdering additionalItems
"""
_OBJECT: Final = """
    properties required additionalProperties propertyNames patternProperties unevaluatedProperties minProperties
    maxProperties dependentRequired dependentSchemas
"""
ANNOTATIONS: Final = frozenset(_ANNOTATIONS.split())
OBJECT: Final = frozenset(_OBJECT.split())
_ARRAY: Final = """
    items prefixItems unevaluatedItems minItems maxItems uniqueItems contains minContains maxContains
"""
ARRAY: Final = frozenset(_ARRAY.split())
STRING: Final = frozenset(("minLength", "maxLength", "pattern", "format"))
NUMBER: Final = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
ANY_TYPE: Final = frozenset(("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "not", "if", "then", "else"))
KNOWN: Final = OBJECT | ARRAY | STRING | NUMBER | ANY_TYPE

# Where the schemas inside a schema stand.
_SCHEMAS: Final = """
    items contains additionalProperties propertyNames unevaluatedItems unevaluatedProperties not if then else
"""
SCHEMAS: Final = frozenset(_SCHEMAS.split())
LISTS: Final = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
MAPS: Final = frozenset(("properties", "patternProperties", "dependentSchemas"))

_INSTEAD: Final = {
    "dependencies": "write `dependentRequired` or `dependentSchemas`, as since draft 2019-09",
    "$dynamicRef": "use `$ref` to `#/$defs/...`",
    "$recursiveRef": "use `$ref` to `#/$defs/...`",
    "$recursiveAnchor": "use `$ref` to `#/$defs/...`",
}


def assertions(schema: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """The keywords that say something about values, without annotations and ``x-`` extensions.

    Raises:
        RequestError: a keyword that cannot be enforced or that is not known.
    """
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in KNOWN:
            kept[key] = value
        elif key in _INSTEAD:
            raise (place / key).refuse(f"`{key}` cannot be enforced; {_INSTEAD[key]}")
        elif key not in ANNOTATIONS and not key.startswith("x-"):
            near = get_close_matches(key[:64], KNOWN, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else "; leave it out"
            raise (place / key[:64]).refuse(f"`{key[:64]}` is not a keyword that is known here{hint}")
        elif key == "$id" and place.keys:
            raise (place / key).refuse("`$id` inside a schema moves what `$ref` means; leave it out")
    return kept


def types(schema: Mapping[str, Any], place: Place) -> tuple[str, ...]:
    """The types that a value may have, as declared or, without ``type``, as its keywords speak of.

    A keyword binds values of its own type only, so narrowing to that type is sound. Empty: any type.
    """
    declared = schema.get("type")
    if declared is None and "type" not in schema:
        groups = (("object", OBJECT), ("array", ARRAY), ("string", STRING), ("number", NUMBER))
        return tuple(name for name, group in groups if group & schema.keys())
    names = declared if isinstance(declared, list) else [declared]
    for name in names:
        if not isinstance(name, str) or name not in TYPES:
            near = get_close_matches(str(name)[:20], TYPES, n=1)
            raise (place / "type").invalid(
                f"{str(name)[:40]!r} is no type" + (f"; did you mean {near[0]!r}?" if near else "")
            )
    if not names:
        raise (place / "type").invalid("must name at least one type")
    unique = dict.fromkeys(names)
    if "number" in unique:
        unique.pop("integer", None)
    return tuple(unique)


def type_of(value: Any) -> str:
    """The JSON Schema type of a value; a number without fraction is an integer."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == int(value) else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def identity(value: Any) -> str:
    """A text that is equal for values that JSON Schema calls equal: 1 and 1.0 are, 1 and true are not."""
    return json.dumps(_normal(value), sort_keys=True)


def _normal(value: Any) -> Any:
    if isinstance(value, float) and value == int(value):
        return int(value)
    if isinstance(value, list):
        return [_normal(item) for item in value]
    return {key: _normal(item) for key, item in value.items()} if isinstance(value, dict) else value
