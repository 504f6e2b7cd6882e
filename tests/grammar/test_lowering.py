"""Structural tags as grammars: what is lowered, what stays, and that both accept the same text."""

from __future__ import annotations

from typing import Any

import pytest

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.ebnf import Rules
from heptagram_backend.errors import EngineError
from heptagram_backend.lowering import lower
from tests.formats.smollm2 import factory

A: dict[str, Any] = {"type": "const_string", "value": "a"}
B: dict[str, Any] = {"type": "const_string", "value": 'b"\\°\n'}
NUMBER: dict[str, Any] = {"type": "json_schema", "json_schema": {"type": "integer"}}
EVERY = ["", "a", "7", "a7", 'ab"\\°\n', 'b"\\°\n', "<a>", "<7>", "<a>, <a>", "<7>, <a>", "<7>, <7>, <a>", "<a>,<a>"]
TEXT: dict[str, Any] = {"type": "any_text", "excludes": ["<"]}


def tag(content: Any) -> dict[str, Any]:
    return {"type": "tag", "begin": "<", "content": content, "end": ">"}


def tags(*content: Any, **options: bool) -> dict[str, Any]:
    return {"type": "tags_with_separator", "tags": [tag(part) for part in content], "separator": ", ", **options}


def accepted(node: Any, texts: list[str]) -> list[str]:
    spec = ConstraintSpec.structural_tag({"type": "structural_tag", "format": node})
    result = []
    for text in texts:
        grammar = factory().matcher(spec)
        if (not text or grammar.accept_text(text.encode())) and grammar.completed:
            result.append(text)
        grammar.close()
    return result


@pytest.mark.parametrize(
    ("node", "texts"),
    [
        ({"type": "sequence", "elements": [A, B]}, ['ab"\\°\n']),
        ({"type": "or", "elements": [A, B]}, ["a", 'b"\\°\n']),
        ({"type": "sequence", "elements": [{"type": "optional", "content": A}, NUMBER]}, ["7", "a7"]),
        (tags(A, NUMBER, at_least_one=True), ["<a>", "<7>", "<a>, <a>", "<7>, <a>", "<7>, <7>, <a>"]),
        (tags(A, at_least_one=True, stop_after_first=True), ["<a>"]),
        (tags(A, NUMBER, stop_after_first=True), ["", "<a>", "<7>"]),
        (tags(A), ["", "<a>", "<a>, <a>"]),
        ({"type": "sequence", "elements": [TEXT, tags(A)]}, [*EVERY[:7], "<a>, <a>"]),
    ],
)
def test_a_lowered_tag_accepts_the_same(node: Any, texts: list[str]) -> None:
    assert accepted(node, EVERY) == texts


def rules(schema: str) -> Rules:
    return {"root": "(basic_x defs_a-b)", "defs_a-b": '"root"', "basic_x": '"x"'}


def test_schemas_share_the_rules_of_json_and_the_same_schema_is_made_once() -> None:
    other = {"type": "json_schema", "json_schema": True}
    grammar = lower({"type": "or", "elements": [NUMBER, other, NUMBER]}, rules)["grammar"]
    assert grammar.count("basic_x ::=") == 1
    assert grammar.splitlines()[-1] == "root ::= (json_0 | json_3 | json_0)"
    assert '"root"' in grammar


def test_only_what_is_plain_grammar_is_lowered() -> None:
    styled = {**NUMBER, "style": "qwen_xml"}
    lowered = lower({"type": "sequence", "elements": [TEXT, styled, A, tag(TEXT)]}, rules)
    assert lowered["elements"][:2] == [TEXT, styled]
    assert lowered["elements"][2] == {"type": "grammar", "grammar": 'root ::= "a"\n'}
    assert lowered["elements"][3] == tag(TEXT)


def test_rules_of_json_that_differ_are_refused() -> None:
    node = {"type": "or", "elements": [NUMBER, {"type": "json_schema", "json_schema": True}]}
    with pytest.raises(EngineError, match="basic_x in two ways"):
        lower(node, lambda schema: {"root": "basic_x", "basic_x": f'"{len(schema)}"'})


def test_many_schemas_keep_their_rules_apart() -> None:
    def made(schema: str) -> Rules:
        return {"basic_x": '"x"', "basic_y": '"y"', "part": f'"{schema}" basic_x', "root": "part basic_y"}

    nodes = [{"type": "json_schema", "json_schema": number} for number in range(5)]
    grammar = lower({"type": "or", "elements": nodes}, made)["grammar"]
    names = [line.split(" ::= ")[0] for line in grammar.splitlines()]
    assert len(set(names)) == len(names) == 2 + 5 * 2 + 1
