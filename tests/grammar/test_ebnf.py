"""The text side of JSON grammars: which ones have a finite sentence, and what is refused as unknown."""

from __future__ import annotations

import pytest

from heptagram_backend.ebnf import harden, is_productive, literal, longest_forced, read, renamed, shortest, write
from heptagram_backend.errors import EngineError

BASIC = "basic_escape ::= a\nbasic_integer ::= a\nbasic_number ::= a\n"


@pytest.mark.parametrize(
    ("grammar", "productive"),
    [
        ('root ::= "a"', True),
        ("root ::= ((root))", False),
        ('root ::= ("a" root)', False),
        ('root ::= ("a" root) | "b"', True),
        ('root ::= ("(" root{0, -1} ")")', True),
        ('root ::= ("(" root{1, -1} ")")', False),
        ("root ::= (one two)\none ::= two\ntwo ::= [a-z)|]", True),
        ("root ::= (one two)\none ::= two\ntwo ::= (one)", False),
        ('root ::= "x" (=([ \\n]* root))', False),
        ('root ::= (root | ("\\"" Regex("^(a|b)$", json_string=true) "\\""))', True),
        ("root ::= (root)? root*", True),
        ("root ::= missing", False),
    ],
)
def test_productivity(grammar: str, productive: bool) -> None:
    assert is_productive(read(grammar)) is productive


@pytest.mark.parametrize(
    ("grammar", "least", "forced"),
    [
        (r'root ::= "ab\n\u00e9"', 4, 4),
        ('root ::= "a" | ("bcd" [x-z]{2, 5})', 1, 5),
        ('root ::= one{3} two\none ::= "abc" | root\ntwo ::= ("" | "abcd")', 9, 9),
        ('root ::= "a"* ("b"{100}){100, -1} "c"? "d"+', 10_001, 10_001),
        ('root ::= "a" root | "b"', 1, 2),
        (r'root ::= ("\"" Regex("^(ab|[0-9]{7}){5}c?$", json_string=true) "\""){3, -1}', 36, 36),
        ('root ::= "a" | dead\ndead ::= "b" dead', 1, 1),
    ],
)
def test_the_least_that_a_rule_needs(grammar: str, least: int, forced: int) -> None:
    lengths = shortest(read(grammar), plain_json=False)
    assert lengths["root"] == least
    assert longest_forced(read(grammar), lengths) == forced


@pytest.mark.parametrize("order", [1, -1])
def test_doubled_rules_are_measured_without_writing_them_out(order: int) -> None:
    doubled = {f"r{i}": f"(r{i + 1} r{i + 1})" for i in range(3000)} | {"r3000": '"a"'}
    rules = {"root": '("x" | r0)'} | dict(list(doubled.items())[::order])
    assert longest_forced(rules, shortest(rules)) >= 1e18


def test_literals_that_look_like_classes_stay() -> None:
    kept = r'root ::= ("\"[^\\\"\\\\\\r\\n]\"" [^\"\\\r\n])'
    hardened = harden(read(kept + "\n" + BASIC))["root"]
    assert hardened.startswith(r'("\"[^\\\"\\\\\\r\\n]\"" [ !#-')


def test_escapes_end_where_they_were_meant_to() -> None:
    hardened = harden(read('root ::= ("\\xb0C" "\\\\xb0" [\\xe9-\\xfa])\n' + BASIC))
    assert hardened["root"] == '("\\u00b0C" "\\\\xb0" [\\u00e9-\\u00fa])'


@pytest.mark.parametrize("grammar", ["root ::= [^x]\n" + BASIC, 'root ::= "a"\n'])
def test_another_library_version_is_refused(grammar: str) -> None:
    with pytest.raises(EngineError, match="pinned version"):
        harden(read(grammar))


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(EngineError, match="unknown form"):
        is_productive({"root": "TagDispatch(<a>)"})


def test_reading_and_writing_are_inverse() -> None:
    rules = {"root": '(defs_a-b "x ::= y" | "")', "defs_a-b": "[a-z]{1, 2}"}
    assert read(write(rules)) == rules


def test_renaming_touches_references_only() -> None:
    body = renamed(r'(a "a" [a]{1, 2} Regex("a", json_string=true) | a-b*) (=(a))', lambda name: f"<{name}>")
    assert body == r'( <a> "a" [a]{1, 2} Regex("a", json_string=true) | <a-b>*) (=( <a>))'


def test_a_literal_needs_no_care() -> None:
    assert literal('a"\\\n°') == r'"a\U00000022\U0000005c\U0000000a\U000000b0"'
