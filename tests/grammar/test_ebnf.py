"""The text side of JSON grammars: which ones have a finite sentence, and what is refused as unknown."""

from __future__ import annotations

import pytest

from heptagram_backend.ebnf import harden, is_productive, literal, read, renamed, write
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
