"""What type a value between two tags has: the declared type decides, for the markup does not say.

Text that is JSON of one of the declared types other than string is that JSON; any other text is a string. So ``null``
for a string that may be null is null, ``5`` for a string or an integer is 5, and both are text for a string alone.
Nothing is repaired: text that is not of a declared type is kept as a string.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

# "true" and "false" are types of their own, so that a schema that admits one of them only is told exactly.
ANY: Final = frozenset(("string", "object", "array", "number", "true", "false", "null"))
_STARTS: Final[Mapping[str, str]] = {
    **{"object": "{", "array": "[", "number": "-0123456789", "integer": "-0123456789"},
    **{"true": "t", "false": "f", "null": "n"},
}
_NAMES: Final[Mapping[str, frozenset[str]]] = {
    "boolean": frozenset(("true", "false")),
    **{name: frozenset((name,)) for name in ("string", "object", "array", "number", "integer", "null")},
}
_DEPTH: Final = 32


def types_of(schema: Any, root: Mapping[str, Any], depth: int = 0) -> frozenset[str]:
    """The types that a value of ``schema``, a part of ``root``, may be of. What cannot be told may be of any."""
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return ANY
    found = ANY
    if isinstance(reference := schema.get("$ref"), str):
        found = types_of(_target(reference, root), root, depth + 1)
    if isinstance(name := schema.get("type"), str | list):
        names = [name] if isinstance(name, str) else name
        declared = [_NAMES.get(each, ANY) if isinstance(each, str) else ANY for each in names]
        found = _both(found, frozenset().union(*declared))
    for values in ([schema["const"]] if "const" in schema else None, schema.get("enum")):
        if isinstance(values, list):
            found = _both(found, frozenset(map(type_of, values)))
    for key in ("anyOf", "oneOf"):
        if isinstance(branches := schema.get(key), list):
            found = _both(found, frozenset().union(*(types_of(branch, root, depth + 1) for branch in branches)))
    for part in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
        found = _both(found, types_of(part, root, depth + 1))
    return found | _NAMES["null"] if schema.get("nullable") is True else found


def starts(types: frozenset[str]) -> str:
    """The characters that JSON of ``types``, strings apart, may begin with."""
    return "".join(sorted(set("".join(_STARTS.get(name, "") for name in types))))


def type_of(value: Any) -> str:
    """The narrowest type of JSON data."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) else "number"
    return "string" if isinstance(value, str) else "object" if isinstance(value, Mapping) else "array"


def json_text(text: str, types: frozenset[str]) -> str:
    """The JSON that ``text`` stands for.

    >>> json_text("5", ANY), json_text("5", frozenset(("string",))), json_text("so", frozenset(("number",)))
    ('5', '"5"', '"so"')
    """
    if text[:1] in starts(types) and text[:1] and text == text.strip():
        try:
            # A key that stands twice makes it text; where no text may stand it is told as it is, and found invalid.
            pairs = _unique if "string" in types else dict
            value = json.loads(text, object_pairs_hook=pairs, parse_constant=_finite, parse_float=_finite)
            json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair cannot be encoded
        except (ValueError, RecursionError):
            return json.dumps(text, ensure_ascii=False)
        kind = type_of(value)
        if kind in types or (kind == "integer" and "number" in types):
            return text
    return json.dumps(text, ensure_ascii=False)


def _both(left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
    """What is of ``left`` and of ``right``: every integer is a number."""
    integers = [side for side, other in ((left, right), (right, left)) if "number" in other and "number" not in side]
    return left & right | frozenset(name for side in integers for name in side if name == "integer")


def _target(reference: str, root: Mapping[str, Any]) -> Any:
    node: Any = root
    for key in reference.removeprefix("#").split("/")[1:]:
        node = node.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(node, Mapping) else None
    return node if reference.startswith("#") else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice")
    return value


def _finite(text: str) -> float:
    if not isfinite(value := float(text)):
        raise ValueError(f"{text} is no number of JSON")
    return value
