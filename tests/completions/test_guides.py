"""Guides: what the grammar of a regular expression, a choice or a caller's EBNF admits, and what is refused."""

from __future__ import annotations

import json
import random
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heptagram_backend.constraint import ConstraintSpec, GrammarFactory
from heptagram_backend.errors import RequestError
from heptagram_backend.grammars import load_grammar_factory
from heptagram_wire import errors as codes
from tests.completions.asking import parse, refused

_STOP = 256
_WIDTH = _STOP + 1


@cache
def factory() -> GrammarFactory:
    """Over single bytes, where every text can be reached."""
    bytes_ = [bytes([byte]) for byte in range(256)]
    return load_grammar_factory([*bytes_, None], vocab_width=_WIDTH, stop_token_ids=[_STOP])


def guide(kind: str, text: str) -> ConstraintSpec:
    spec = parse(guided_decoding_guide_type=kind, guided_decoding_guide=text).constraint
    assert spec is not None
    return spec


def accepts(spec: ConstraintSpec, text: str) -> bool:
    matcher = factory().matcher(spec)
    try:
        return matcher.accept_text(text.encode()) and matcher.completed if text else matcher.completed
    finally:
        matcher.close()


def walk(spec: ConstraintSpec, seed: int, steps: int = 40) -> tuple[str, bool]:
    """A text by a random walk under the mask, and whether it ended."""
    choose, matcher, text = random.Random(seed), factory().matcher(spec), bytearray()
    row = np.zeros(-(-_WIDTH // 32), np.int32)
    for _ in range(steps):
        assert matcher.fill(row)
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")[:_WIDTH]).tolist()
        assert allowed
        token = _STOP if _STOP in allowed and choose.random() < 0.4 else choose.choice(allowed)
        assert matcher.accept(token)
        if token == _STOP:
            return text.decode(), True
        text.append(token)
    return text.decode(errors="ignore"), False


_ATOMS = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "\\d", "\\n", '"', "\\\\", "é", "[^\\x00-\\x7f]", "-", "ab"])
_PATTERNS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "{0}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(_PATTERNS, st.lists(st.text(alphabet='ab1 \n"\\é-', max_size=5), max_size=8), st.integers())
def test_a_regex_matches_the_whole_answer_and_nothing_else(pattern: str, texts: list[str], seed: int) -> None:
    try:
        spec = guide("regex", pattern)
    except RequestError as error:
        assert "rounds of a repeated group" in str(error)  # noqa: PT017 - most patterns raise nothing
        return
    for text in texts:
        assert accepts(spec, text) == bool(re.fullmatch(pattern, text)), (pattern, text)
    text, ended = walk(spec, seed)
    if ended:
        assert re.fullmatch(pattern, text), (pattern, text)


def test_anchors_of_a_regex_say_what_is_so_anyway() -> None:
    for pattern in ("a|b", "^a|b$", "^(?:a|b)$"):
        spec = guide("regex", pattern)
        assert [accepts(spec, text) for text in ("a", "b", "ab", "xa", "")] == [True, True, False, False, False]


@pytest.mark.parametrize(
    "pattern", ["(?=a)b", "a\\b", "(a)\\1", "[", "a)(b", "([a-z]+ ?){1,16}", "(a*){2}", "[^\\s\\S]", "x" * 2000]
)
def test_a_regex_that_cannot_be_enforced_is_refused(pattern: str) -> None:
    wire = refused(guided_decoding_guide_type="regex", guided_decoding_guide=pattern)
    assert wire.code in (codes.UNSUPPORTED_SCHEMA, codes.PATTERN_TOO_LARGE)
    assert wire.param == "guided_decoding_guide"


def test_ebnf_of_a_caller() -> None:
    spec = guide("ebnf_grammar", 'root ::= "say " word (" and " word)? # comment\nword ::= [^ "\\n-]{2} | [\\u00e9-]')
    assert accepts(spec, "say ab and é")
    assert accepts(spec, "say 日本")
    assert accepts(spec, "say -")
    for text in ("say a-", 'say a"', "say ", "say abc"):
        assert not accepts(spec, text)


@pytest.mark.parametrize("inner", ["[a]{2}", '"ab"{1,2}', "x", "[a]{0,3}", "[a]{2,}", "([a]{2}){1,2}"])
@pytest.mark.parametrize("outer", ["{0,1}", "{2}", "{1,2}", "?", "*", "{2,}"])
def test_counts_of_counts_of_a_caller_are_kept_apart(inner: str, outer: str) -> None:
    spec = guide("ebnf_grammar", f"root ::= y{outer}\ny ::= {inner}\nx ::= [a]{{2}}")
    body = inner.replace("x", "(?:a{2})").replace('"ab"', "(?:ab)")
    same = re.compile(f"(?:{body}){outer}")
    for length in range(9):
        for text in ("a" * length, "ab" * (length // 2)):
            assert accepts(spec, text) == bool(same.fullmatch(text)), text


@settings(max_examples=60, deadline=None)
@given(st.integers())
def test_negated_classes_of_a_caller_give_whole_characters_only(seed: int) -> None:
    text, ended = walk(guide("ebnf_grammar", "root ::= [^a-z]{1,6}"), seed)
    if ended:  # decoding it was strict
        assert 1 <= len(text) <= 6
        assert not re.search("[a-z]", text)


@pytest.mark.parametrize(
    ("grammar", "code"),
    [
        ("root ::= nowhere", codes.UNSUPPORTED_SCHEMA),
        ('root ::= "a" root', codes.UNSUPPORTED_SCHEMA),
        ("root ::= basic_x\nbasic_x ::= basic_x", codes.UNSUPPORTED_SCHEMA),
        ('root ::= [a-z]* (= "x")', codes.UNSUPPORTED_SCHEMA),
        ('root ::= Regex("a+")', codes.UNSUPPORTED_SCHEMA),
        ("root ::= [^\\0-\\U0010ffff]", codes.UNSUPPORTED_SCHEMA),
        ("root ::= (((", codes.UNSUPPORTED_SCHEMA),
        ("root ::= " + "(" * 3000 + '"a"' + ")" * 3000, codes.UNSUPPORTED_SCHEMA),
    ],
)
def test_ebnf_that_cannot_be_enforced_is_refused_where_it_is_compiled(grammar: str, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        factory().compile(guide("ebnf_grammar", grammar))
    assert caught.value.wire.code == code


def test_ebnf_is_bounded() -> None:
    for grammar in ("root ::= a\n" * 500, "root ::= " + "a" * 40_000):
        wire = refused(guided_decoding_guide_type="ebnf_grammar", guided_decoding_guide=grammar)
        assert wire.code == codes.GRAMMAR_TOO_LARGE
    assert refused(guided_decoding_guide_type="ebnf_grammar", guided_decoding_guide="x").code == codes.INVALID_VALUE


def test_a_grammar_whose_masks_take_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heptagram_backend.grammar_cost._LIMIT_S", 0.0)
    with pytest.raises(RequestError, match="read in too many ways"):
        factory().compile(guide("ebnf_grammar", 'root ::= "cost" [a-z]*'))


def test_schemas_are_walked() -> None:
    spec = guide("json_schema", '{"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}')
    assert accepts(spec, '{"a": 1}')
    assert not accepts(spec, '{"a": 1, "b": 2}')
    assert accepts(guide_of_any_object(), '{"x": [1, {}]}')
    assert not accepts(guide_of_any_object(), "[]")
    wire = refused(guided_decoding_guide_type="json_schema", guided_decoding_guide='{"not": {}}')
    assert (wire.code, wire.param) == (codes.UNSUPPORTED_SCHEMA, "guided_decoding_guide")


def guide_of_any_object() -> ConstraintSpec:
    spec = parse(guided_decoding_guide_type="json").constraint
    assert spec is not None
    return spec


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"json": {"type": "integer"}}, "json_schema", '{"type": "integer"}'),
        ({"json": '{"type": "integer"}', "disable_any_whitespace": True}, "json_schema", '{"type": "integer"}'),
        ({"regex": "a+", "backend": "xgrammar"}, "regex", "a+"),
        ({"grammar": 'root ::= "a"'}, "ebnf_grammar", 'root ::= "a"'),
    ],
)
@pytest.mark.parametrize("name", ["structured_outputs", "guided_decoding"])
def test_vllms_form_says_the_same(options: dict[str, Any], kind: str, text: str, name: str) -> None:
    expected = guide(kind, text)
    assert parse({name: options}).constraint == expected
    assert parse({name: json.dumps(options)}).constraint == expected


def test_a_choice_is_one_of_its_texts() -> None:
    spec = parse({"structured_outputs": {"choice": ["yes", 'n"o\\', "né"]}}).constraint
    assert spec is not None
    assert [accepts(spec, text) for text in ("yes", 'n"o\\', "né", "n", "yesyes")] == [True] * 3 + [False] * 2
    assert parse({"structured_outputs": {"json_object": "true"} | {"json_object": True}}).constraint is not None


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({}, "structured_outputs.json"),
        ({"json": {}, "regex": "a"}, "structured_outputs.regex"),
        ({"regex": 5}, "structured_outputs.regex"),
        ({"json": 5}, "structured_outputs.json"),
        ({"json": "5"}, "structured_outputs.json"),
        ({"choice": []}, "structured_outputs.choice"),
        ({"choice": ["a", ""]}, "structured_outputs.choice[1]"),
        ({"choice": ["a"] * 3000}, "structured_outputs.choice"),
        ({"structural_tag": "{}"}, "structured_outputs.structural_tag"),
        ({"regex": "a", "whitespace_pattern": " "}, "structured_outputs.whitespace_pattern"),
        ({"regex": "a", "oops": 1}, "structured_outputs.oops"),
    ],
)
def test_faults_of_vllms_form_name_the_place(options: dict[str, Any], param: str) -> None:
    assert refused({"structured_outputs": options}).param == param


@pytest.mark.parametrize(
    ("tensors", "code", "param"),
    [
        ({"guided_decoding_guide": "{}"}, codes.MISSING, "guided_decoding_guide_type"),
        ({"guided_decoding_guide_type": "regex"}, codes.MISSING, "guided_decoding_guide"),
        ({"guided_decoding_guide_type": "xml"}, codes.INVALID_VALUE, "guided_decoding_guide_type"),
        ({"guided_decoding_guide_type": "structural_tag"}, codes.UNSUPPORTED, "guided_decoding_guide_type"),
        (
            {"guided_decoding_guide_type": "json", "guided_decoding_guide": "{}"},
            codes.INVALID_VALUE,
            "guided_decoding_guide",
        ),
        (
            {"guided_decoding_guide_type": "json", "sampling_parameters": '{"structured_outputs": {"regex": "a"}}'},
            codes.INVALID_VALUE,
            "guided_decoding_guide_type",
        ),
    ],
)  # fmt: skip
def test_the_two_inputs_belong_together(tensors: dict[str, Any], code: str, param: str) -> None:
    wire = refused(**tensors)
    assert (wire.code, wire.param) == (code, param)
