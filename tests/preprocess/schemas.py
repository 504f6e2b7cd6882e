"""Small JSON Schemas of many kinds, also ones that must be refused, and JSON values to try on them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "c", 'q"\\'])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-12, 12),
    st.sampled_from([0.5, -1.25, 2.0, 1e3, 0.1, 1e-7]),
    st.text(alphabet='ab1 "\\\né😀', max_size=4),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)
_BOUNDS = st.one_of(st.integers(-9, 9), st.sampled_from([0.5, -2.5, 0.1, 3.999999999, 1e-9, -1e20, 1e20]))
_COUNTS = st.integers(0, 3)
PATTERNS = st.sampled_from(
    [
        "a",
        "^a",
        "b$",
        "^[ab]*$",
        "^(a|b1)+$",
        "\\d",
        "^\\S+$",
        '^"',
        "^[^a]{2,3}$",
        "^a.?b?$",
        "^(?:a{1,2}){2}$",
        "(?=a)",
        "^é|😀$",
    ]
)
_TYPES = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])


def _optional(**strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Few of the keywords at a time, so that many schemas are admitted."""
    keys = sorted(strategies)
    return st.lists(st.sampled_from(keys), max_size=3, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({key: strategies[key] for key in chosen})
    )


def _with_type(name: str, keywords: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return keywords.flatmap(
        lambda found: st.sampled_from([{"type": name, **found}, {"type": [name, "null"], **found}, found])
    )


_STRINGS = _with_type(
    "string",
    _optional(
        minLength=_COUNTS,
        maxLength=_COUNTS,
        pattern=PATTERNS,
        format=st.sampled_from(["date", "ipv4", "uuid", "iri", "regex", "nope"]),
    ),
)
_NUMBER_KEYWORDS = _optional(
    minimum=_BOUNDS,
    maximum=_BOUNDS,
    exclusiveMinimum=_BOUNDS,
    exclusiveMaximum=_BOUNDS,
    multipleOf=st.sampled_from([1, 2, 3, 0.5, 2.0, 0.25]),
)
_LEAVES = st.one_of(
    st.booleans(),
    _STRINGS,
    _with_type("integer", _NUMBER_KEYWORDS),
    _with_type("number", _NUMBER_KEYWORDS),
    st.fixed_dictionaries({"const": VALUES}),
    st.fixed_dictionaries({"enum": st.lists(VALUES, min_size=1, max_size=4)}),
    st.fixed_dictionaries({"type": _TYPES, "enum": st.lists(VALUES, min_size=1, max_size=4)}),
    st.fixed_dictionaries({"type": st.lists(_TYPES, min_size=1, max_size=3)}),
    st.sampled_from([{"$ref": "#/$defs/x"}, {"$ref": "#"}, {"$ref": "#/$defs/y"}]),
)


_CONDITIONS = st.one_of(
    st.fixed_dictionaries({"required": st.lists(NAMES, min_size=1, max_size=2)}),
    st.fixed_dictionaries(
        {"properties": st.dictionaries(NAMES, st.fixed_dictionaries({"const": SCALARS}), min_size=1, max_size=2)},
        optional={"required": st.lists(NAMES, max_size=2), "type": st.just("object")},
    ),
    st.fixed_dictionaries({"enum": st.lists(SCALARS, max_size=3)}),
    _optional(minLength=_COUNTS, maxItems=_COUNTS, minimum=st.integers(-3, 3), exclusiveMaximum=st.integers(-3, 3)),
)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    properties = st.dictionaries(NAMES, inner, max_size=3)
    objects = _optional(
        properties=properties,
        required=st.lists(NAMES, max_size=2, unique=True),
        additionalProperties=inner,
        minProperties=_COUNTS,
        maxProperties=_COUNTS,
        unevaluatedProperties=st.booleans(),
        patternProperties=st.dictionaries(st.sampled_from(["^a", "b", '["c]$']), inner, max_size=2),
        propertyNames=st.one_of(_STRINGS, st.sampled_from([{"enum": ["a", "c", "d"]}, False, {"not": {"const": "b"}}])),
        dependentRequired=st.dictionaries(NAMES, st.lists(NAMES, max_size=2), max_size=2),
        dependentSchemas=st.dictionaries(NAMES, inner, max_size=2),
    )
    arrays = _optional(
        items=inner,
        prefixItems=st.lists(inner, max_size=2),
        unevaluatedItems=inner,
        minItems=_COUNTS,
        maxItems=_COUNTS,
        uniqueItems=st.booleans(),
        contains=inner,
        minContains=_COUNTS,
        maxContains=_COUNTS,
    )
    lists = st.lists(inner, min_size=1, max_size=3)
    conditions = st.one_of(inner, _CONDITIONS)
    unions = _optional(
        anyOf=lists, oneOf=lists, allOf=lists, **{"not": conditions, "if": conditions, "then": inner, "else": inner}
    )
    mixed = st.tuples(unions, st.one_of(objects, _STRINGS, _NUMBER_KEYWORDS, st.just({"$ref": "#/$defs/x"}))).map(
        lambda pair: {**pair[1], **pair[0]}
    )
    return st.one_of(
        _with_type("object", objects), _with_type("object", objects), _with_type("array", arrays), unions, mixed
    )


_NODES = st.recursive(_LEAVES, _containers, max_leaves=6)


@st.composite
def schemas(draw: st.DrawFn) -> Any:
    """A schema with two definitions, which may refer to each other and to the root."""
    root = draw(_NODES)
    if isinstance(root, bool):
        return root
    return {**root, "$defs": {"x": draw(_NODES), "y": draw(_LEAVES)}}
