"""What a completion is constrained to: TensorRT-LLM's two guide inputs, or vLLM's ``structured_outputs``.

Both end in the same constraints as chat: a JSON Schema is walked first, a regular expression is read in the part that
all engines read alike and matches the whole answer, EBNF is checked where it is compiled.
"""

from __future__ import annotations

from typing import Any, Final

from heptagram_backend.caller_grammar import of_choices, of_regex
from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.errors import RequestError
from heptagram_backend.requests.coercion import object_of
from heptagram_backend.requests.fields import Fields, invalid, shown, unsupported, wrong_type
from heptagram_backend.requests.limits import RequestLimits
from heptagram_backend.schema import Budget, walk
from heptagram_backend.schema.regex import PatternError, parse
from heptagram_backend.schema.render import cost
from heptagram_backend.schema.rounds import with_distinct_rounds
from heptagram_wire import errors as codes
from heptagram_wire import tensors as names

_ANY_OBJECT: Final = {"type": "object", "additionalProperties": True}
_TYPES: Final = ("json", "json_schema", "regex", "ebnf_grammar")
_OBJECTS: Final = ("structured_outputs", "guided_decoding")  # vLLM's name, and its older one
_KINDS: Final = ("json", "json_object", "regex", "choice", "grammar")


def read_guide(fields: Fields, kind: str | None, guide: str | None, limits: RequestLimits) -> ConstraintSpec | None:
    """The one constraint of a request.

    Args:
        fields: the sampling parameters.
        kind: input ``guided_decoding_guide_type``.
        guide: input ``guided_decoding_guide``.
        limits: bounds of this server.

    Raises:
        RequestError: an unknown kind, no guide or more than one, or a guide that cannot be enforced.
    """
    found = [_from_object(options, limits) for name in _OBJECTS if (options := fields.nested(name)) is not None]
    if kind is not None:
        found.append(_from_inputs(kind, guide, limits))
    elif guide is not None:
        raise RequestError(
            f"the input is missing; send one of {', '.join(_TYPES)}", code=codes.MISSING, param=names.GUIDE_TYPE
        )
    if len(found) > 1:
        raise invalid(names.GUIDE_TYPE if kind is not None else _OBJECTS[1], "the answer has two guides; keep one")
    return found[0] if found else None


def _from_inputs(kind: str, guide: str | None, limits: RequestLimits) -> ConstraintSpec:
    if kind not in _TYPES:
        if kind == "structural_tag":
            raise unsupported(names.GUIDE_TYPE, "structural tags are not taken from callers; send a json_schema")
        raise invalid(names.GUIDE_TYPE, f"{shown(kind)} is not one of {', '.join(_TYPES)}")
    if kind == "json":
        if guide:
            raise invalid(names.GUIDE, "belongs to json_schema, regex and ebnf_grammar; leave it out")
        return _schema(_ANY_OBJECT, names.GUIDE, limits)
    if not guide:
        raise RequestError(f"a {kind} needs its guide; send it as STRING [1]", code=codes.MISSING, param=names.GUIDE)
    if kind == "json_schema":
        return _schema(object_of(guide, names.GUIDE, limits), names.GUIDE, limits)
    return (_regex if kind == "regex" else _grammar)(guide, names.GUIDE, limits)


def _from_object(options: Fields, limits: RequestLimits) -> ConstraintSpec:
    for name in ("disable_fallback", "disable_any_whitespace", "disable_additional_properties"):
        options.flag(name, False)  # what they ask for is always so here
    for name in ("structural_tag", "whitespace_pattern"):
        if options.get(name) is not None:
            raise unsupported(options.at(name), "not supported; leave it out")
    options.choice("backend", ("auto", "xgrammar"))
    given = [name for name in _KINDS if options.get(name) not in (None, False)]
    options.refuse_unknown()
    if len(given) != 1:
        raise invalid(options.at(given[1]) if given else options.at("json"), f"send exactly one of {', '.join(_KINDS)}")
    [name] = given
    value, path = options.get(name), options.at(name)
    if name == "json_object":
        options.flag(name, True)
        return _schema(_ANY_OBJECT, path, limits)
    if name == "choice":
        return _choice(value, path, limits)
    if name == "json":
        return _schema(object_of(value, path, limits) if isinstance(value, str) else value, path, limits)
    if not isinstance(value, str):
        raise wrong_type(path, "a string", value)
    return (_regex if name == "regex" else _grammar)(value, path, limits)


def _schema(schema: Any, path: str, limits: RequestLimits) -> ConstraintSpec:
    if not isinstance(schema, dict):
        raise wrong_type(path, "an object", schema)
    budget = Budget(limits.schema)
    budget.text(path, schema)
    return ConstraintSpec.json_schema(walk(schema, path, budget))


def _regex(pattern: str, path: str, limits: RequestLimits) -> ConstraintSpec:
    bounds = limits.schema
    _within(path, len(pattern), bounds.pattern_characters, "characters", codes.PATTERN_TOO_LARGE)
    try:
        tree = with_distinct_rounds(parse(pattern, whole=True))
    except PatternError as error:
        raise RequestError(
            f"the pattern cannot be enforced: {error}", code=codes.UNSUPPORTED_SCHEMA, param=path
        ) from None
    _within(path, cost(tree), bounds.pattern_cost, "atoms with their repetitions", codes.REPETITION_TOO_LARGE)
    grammar = of_regex(tree)
    if grammar is None:
        raise RequestError("nothing matches the pattern; correct it", code=codes.UNSUPPORTED_SCHEMA, param=path)
    return ConstraintSpec("ebnf", grammar)


def _grammar(text: str, path: str, limits: RequestLimits) -> ConstraintSpec:
    bounds = limits.schema
    _within(path, len(text), bounds.grammar_characters, "characters", codes.GRAMMAR_TOO_LARGE)
    if "root" not in text:
        raise invalid(path, "a grammar needs a rule `root`; write root ::= ...")
    _within(path, text.count("::="), bounds.grammar_rules, "rules", codes.GRAMMAR_TOO_LARGE)
    return ConstraintSpec("ebnf", text)


def _choice(value: Any, path: str, limits: RequestLimits) -> ConstraintSpec:
    if not isinstance(value, list) or not value:
        raise wrong_type(path, "a list of at least one string", value)
    bounds = limits.schema
    _within(path, len(value), bounds.enum_values, "entries", codes.ENUM_TOO_LARGE)
    for index, text in enumerate(value):
        if not isinstance(text, str) or not text:
            raise invalid(f"{path}[{index}]", "must be a string that is not empty")
    _within(path, sum(map(len, value)), bounds.enum_characters, "characters", codes.ENUM_TOO_LARGE)
    return ConstraintSpec("ebnf", of_choices(value))


def _within(path: str, number: int, limit: int, what: str, code: str) -> None:
    if number > limit:
        raise RequestError(f"more than {limit} {what}; write a smaller one", code=code, param=path)
