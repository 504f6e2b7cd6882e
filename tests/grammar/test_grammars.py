"""Serving without a grammar library."""

from __future__ import annotations

import subprocess
import sys

import pytest

from heptagram_backend import grammars
from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.errors import RequestError
from tests.formats.smollm2 import EOS, token_bytes


def test_a_missing_library_refuses_constraints_by_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammars, "find_spec", lambda name: None)
    factory = grammars.load_grammar_factory(token_bytes(), vocab_width=49152, stop_token_ids=[EOS])
    for ask in (factory.compile, factory.matcher):
        with pytest.raises(RequestError, match="xgrammar is not installed") as refusal:
            ask(ConstraintSpec("regex", "a"))
        assert refusal.value.wire.code == "constraint_unavailable"
    assert factory.live == 0


def test_the_installed_library_is_used() -> None:
    factory = grammars.load_grammar_factory([b"a", None], vocab_width=2, stop_token_ids=[1])
    grammar = factory.matcher(ConstraintSpec("regex", "a"))
    assert grammar.accept(0)
    assert grammar.completed
    grammar.close()


def test_formats_and_choice_load_no_heavy_library() -> None:
    program = (
        "import sys, heptagram_backend.grammars\n"
        "from heptagram_backend.formats import load_format\n"
        "load_format('chatml_json')\n"
        "assert not {'torch', 'xgrammar', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
