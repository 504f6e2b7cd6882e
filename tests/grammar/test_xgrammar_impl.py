"""XGrammar behind our protocol, over SmolLM2's real vocabulary."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.errors import RequestError
from heptagram_backend.xgrammar_impl import XGrammarFactory, XGrammarMatcher
from tests.formats.smollm2 import EOS, encode, factory, token_bytes

V = 49152
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}, "tags": {"type": "array"}},
    "required": ["name"],
    "additionalProperties": False,
}


def schema(value: Any) -> ConstraintSpec:
    return ConstraintSpec("json_schema", json.dumps(value))


def new_row(width: int = V) -> NDArray[np.int32]:
    return np.zeros(-(-width // 32), np.int32)


def allowed(grammar: XGrammarMatcher, width: int = V) -> set[int]:
    row = new_row(width)
    if not grammar.fill(row):
        return set(range(width))
    return set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())


def accepts(spec: ConstraintSpec, text: str | bytes) -> bool:
    """Whether ``text`` is a whole sentence."""
    grammar = factory().matcher(spec)
    data = text.encode() if isinstance(text, str) else text
    try:
        return (not data or grammar.accept_text(data)) and grammar.completed
    finally:
        grammar.close()


@pytest.fixture
def person() -> Iterator[XGrammarMatcher]:
    grammar = factory().matcher(schema(PERSON))
    yield grammar
    grammar.close()


@pytest.fixture(autouse=True)
def _nothing_stays_open() -> Iterator[None]:
    yield
    assert factory().live == 0


def test_mask_and_accept_agree(person: XGrammarMatcher) -> None:
    for token in encode('{"name": "Ann"'):
        within = allowed(person)
        assert token in within
        for other in (0, 1, EOS, *range(17, V, 4001)):
            took = person.accept(other)
            assert took == (other in within)
            person.rollback(int(took))
        assert person.accept(token)


def test_the_end_is_allowed_exactly_when_the_text_is_complete(person: XGrammarMatcher) -> None:
    for token in encode('{"name": "Ann", "age": 3}'):
        assert not person.completed
        assert EOS not in allowed(person)
        assert not person.accept(EOS)
        assert person.accept(token)
    assert person.completed
    assert not person.terminated
    assert allowed(person) == {EOS}
    assert person.accept(EOS)
    assert person.terminated
    for ask in (lambda: person.fill(new_row()), lambda: person.accept(EOS), person.forced_text):
        with pytest.raises(AssertionError, match="terminated"):
            ask()
    person.rollback(1)
    assert not person.terminated
    assert person.completed
    assert allowed(person) == {EOS}


def test_control_tokens_are_never_allowed(capfd: pytest.CaptureFixture[str]) -> None:
    control = {token for token, text in enumerate(token_bytes()) if text is None}
    for source, prefix in (("json_schema", b'{"name": "x'), ("structural_tag", b"x")):
        spec = (
            schema(PERSON)
            if source == "json_schema"
            else ConstraintSpec.structural_tag({"type": "structural_tag", "format": {"type": "any_text"}})
        )
        grammar = factory().matcher(spec)
        assert grammar.accept_text(prefix)
        assert allowed(grammar) & control <= {EOS}
        assert not any(grammar.accept(token) for token in control - {EOS})
        grammar.close()
    assert capfd.readouterr().err == ""


def test_tokens_out_of_range_are_refused(person: XGrammarMatcher) -> None:
    assert not person.accept(V)
    assert not person.accept(-1)


def test_a_row_of_another_width_is_our_fault(person: XGrammarMatcher) -> None:
    with pytest.raises(AssertionError, match="1536 words"):
        person.fill(np.zeros(1537, np.int32))


def test_padding_of_the_logits_is_never_allowed() -> None:
    wide = XGrammarFactory([b"a", b"b", None], 70, [2])
    grammar = wide.matcher(ConstraintSpec("regex", "[ab]*"))
    row = np.full(3, -1, np.int32)
    assert grammar.fill(row)
    assert np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist() == [0, 1, 2]
    assert not grammar.accept(69)
    grammar.close()
    with pytest.raises(ValueError, match="vocab_width is 1"):
        XGrammarFactory([b"a", b"b"], 1, [0])


def test_forced_text(person: XGrammarMatcher) -> None:
    assert person.forced_text() == b'{"name": "'
    assert person.accept_text(b'{"name": "Ann", "t')
    assert person.forced_text() == b'ags": ['
    person.rollback(1)
    assert person.forced_text() == b'{"name": "'


def test_forced_text_inside_a_character_is_empty() -> None:
    grammar = factory().matcher(ConstraintSpec("regex", "é|è"))
    assert grammar.forced_text() == b""
    assert grammar.accept_text("é".encode()[:1])
    assert grammar.forced_text() == b""
    grammar.close()


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_planning_leaves_no_trace(data: st.DataObject) -> None:
    """Property: after any walk of drafts and its rollback the matcher equals one that never walked."""
    with closing(factory().matcher(schema(PERSON))) as planned, closing(factory().matcher(schema(PERSON))) as plain:
        for _ in range(data.draw(st.integers(1, 10))):
            planned.rollback(_walk(planned, data))
            assert allowed(planned) == allowed(plain)
            assert planned.forced_text() == plain.forced_text()
            assert (planned.completed, planned.terminated) == (plain.completed, plain.terminated)
            token = data.draw(st.sampled_from(sorted(allowed(plain) - {EOS}) or [EOS]))
            assert planned.accept(token)
            assert plain.accept(token)
            if plain.terminated:
                break


def _walk(grammar: XGrammarMatcher, data: st.DataObject) -> int:
    """Ask and advance as planning does; returns how many tokens were accepted."""
    walked = 0
    for _ in range(data.draw(st.integers(0, 7))):
        if grammar.terminated:
            break
        grammar.forced_text()
        walked += grammar.accept(data.draw(st.sampled_from(sorted(allowed(grammar))) | st.integers(0, V - 1)))
    return walked


@pytest.mark.parametrize(
    ("value", "text", "valid"),
    [
        ({"type": "object"}, '{"a": [1, -2.5e10, "x", null, true], "b": {}}', True),
        ({"type": "object"}, '{"a":1}', False),
        ({"type": "object"}, '{"a":  1}', False),
        ({"type": "object"}, "{\n}", False),
        (True, r'"\ud83d\ude00 \u00e9"', True),
        (True, r'"\ud83d"', False),
        (True, r'"\ude00\ud83d"', False),
        (True, '"é漢한😀\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff"', True),
        (True, b'"\xc0\xaf"', False),
        (True, b'"\xe0\x80\x80"', False),
        (True, b'"\xed\xa0\x80"', False),
        (True, b'"\xf4\x90\x80\x80"', False),
        (True, '"\t"', False),
        ({"type": "string", "maxLength": 3}, '"\t"', False),
        ({"type": "string", "maxLength": 3}, '"\x00"', False),
        ({"type": "string", "maxLength": 3}, '"é漢😀"', True),
        ({"type": "string", "maxLength": 3}, '"abcd"', False),
        ({"type": "string", "pattern": "^[^a]*$"}, '"\n"', False),
        ({"type": "string", "pattern": "^[^a]*$"}, '"\x01"', False),
        ({"enum": ["°C", "\x80a", "Āb", "漢1", "😀2"]}, '"°C"', True),
        ({"enum": ["°C", "\x80a", "Āb", "漢1", "😀2"]}, '"\x80a"', True),
        ({"enum": ["°C", "\x80a", "Āb", "漢1", "😀2"]}, '"Āb"', True),
        ({"enum": ["°C", "\x80a", "Āb", "漢1", "😀2"]}, '"漢1"', True),
        ({"enum": ["°C", "\x80a", "Āb", "漢1", "😀2"]}, '"😀2"', True),
        ({"enum": ["°C"]}, '"ଌ"', False),
        ({"type": "string", "pattern": "^°C[à-ã]$"}, '"°Cã"', True),
        (True, "1e999", False),
        (True, "1.5e-308", True),
        (True, "9" * 32 + "e269", True),
        (True, "1" * 33, False),
        ({"type": "integer"}, "-12", True),
        ({"type": "integer"}, "012", False),
        ({"type": "integer"}, "1.0", False),
    ],
)
def test_json_is_canonical_finite_and_utf8(value: Any, text: str | bytes, valid: bool) -> None:
    assert accepts(schema(value), text) is valid


def test_every_character_of_a_string_is_allowed() -> None:
    grammar = factory().matcher(schema({"type": "string", "maxLength": 2}))
    assert grammar.accept_text(b'"')
    points = (*range(0x20, 0x3000), *range(0x3000, 0x110000, 251), *range(0xCFF0, 0xE010), *range(0xFFF0, 0x10010))
    for point in points:
        fits = not 0xD800 <= point < 0xE000 and chr(point) not in '"\\'
        took = grammar.accept_text(chr(point).encode("utf-8", "surrogatepass"))
        if chr(point) != '"':
            assert took == fits, hex(point)
        grammar.rollback(int(took))
    grammar.close()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (schema({"type": "frob"}), 'Unsupported type "frob"'),
        (schema({"type": "string", "pattern": r"\p{L}"}), "not supported"),
        (schema({"$ref": "#"}), "no finite output"),
        (
            schema({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}),
            "no finite output",
        ),
        (ConstraintSpec("json_schema", "{"), "cannot be compiled"),
        (ConstraintSpec("regex", "(?=a)b\x00"), "look-around"),
        (ConstraintSpec("ebnf", "root ::= frob"), 'Rule "frob" is not defined'),
        (ConstraintSpec("ebnf", "root ::= root"), "no finite output"),
        (ConstraintSpec("structural_tag", "{"), "cannot be compiled"),
        (ConstraintSpec.structural_tag({"type": "structural_tag", "format": {"type": "frob"}}), "frob"),
    ],
)
def test_what_cannot_be_enforced_is_refused(spec: ConstraintSpec, message: str) -> None:
    with pytest.raises(RequestError, match=message) as refusal:
        factory().matcher(spec)
    assert refusal.value.wire.code == "unsupported_schema"
    assert "/project/" not in refusal.value.wire.message
    assert ".cc" not in refusal.value.wire.message


def test_what_no_token_can_begin_is_refused() -> None:
    narrow = XGrammarFactory([b"a", b"b", None], 3, [2])
    narrow.matcher(ConstraintSpec("ebnf", 'root ::= "a"')).close()
    with pytest.raises(RequestError) as refusal:
        narrow.matcher(ConstraintSpec("ebnf", 'root ::= "c"'))
    assert refusal.value.wire.code == "unsupported_schema"


def _twice(times: int) -> dict[str, Any]:
    """Each definition holds the next one twice: small to write, huge to fulfil."""
    steps = {
        f"d{i}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/d{i + 1}"}] * 2, "minItems": 2, "items": False}
        for i in range(times)
    }
    return {"anyOf": [{"const": 1}, {"$ref": "#/$defs/d0"}], "$defs": {**steps, f"d{times}": {"const": 1}}}


def _nested(*counts: int) -> dict[str, Any]:
    value: dict[str, Any] = {"const": 1}
    for count in counts:
        value = {"type": "array", "items": value, "minItems": count, "maxItems": count}
    return value


@pytest.mark.parametrize(
    "spec",
    [
        schema(_twice(36)),
        schema(_nested(4096, 4096, 4096)),
        schema({"type": "array", "items": {"type": "string", "pattern": "^a{1500}$"}, "minItems": 99}),
        ConstraintSpec(
            "ebnf", "".join(f"r{i} ::= r{i + 1} r{i + 1}\n" for i in range(40)) + 'r40 ::= "a"\nroot ::= r0'
        ),
    ],
)
def test_what_forces_more_text_than_any_answer_holds_is_refused(spec: ConstraintSpec) -> None:
    """The library would write it all, without end, on the thread that serves everybody."""
    with pytest.raises(RequestError, match="needs at least") as refusal:
        factory().matcher(spec)
    assert refusal.value.wire.code == "repetition_too_large"


@pytest.mark.parametrize("spec", [schema(_twice(10)), schema(_nested(64, 64))])
def test_what_an_answer_may_hold_is_not_refused(spec: ConstraintSpec) -> None:
    factory().matcher(spec).close()


def test_closing_counts_once() -> None:
    first, second = factory().matcher(schema(PERSON)), factory().matcher(schema(PERSON))
    assert factory().live == 2
    first.close()
    first.close()
    assert factory().live == 1
    second.close()


class Counting(XGrammarFactory):
    """Counts compilations, and lets several threads meet before the first one ends."""

    def __init__(self, limit: int) -> None:
        super().__init__(token_bytes(), V, [EOS], cache_limit_bytes=limit)
        self.compiled: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def _compile(self, spec: ConstraintSpec) -> Any:
        self.compiled.append(spec.source)
        assert self.gate.wait(10)
        return super()._compile(spec)


def in_threads(count: int, ask: Any) -> list[Any]:
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(ask())
        except RequestError as error:
            results.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    return [results, *threads]


@pytest.mark.parametrize(("source", "failure"), [(PERSON, False), ({"$ref": "#"}, True)])
def test_threads_that_ask_together_compile_once(source: Any, failure: bool) -> None:
    counting = Counting(1 << 30)
    counting.gate.clear()
    results, *threads = in_threads(5, lambda: counting.compile(schema(source)))
    counting.gate.set()
    for thread in threads:
        thread.join(10)
    assert len(results) == 5
    if failure:
        assert all(isinstance(result, RequestError) for result in results)
    else:
        assert len({id(result) for result in results}) == 1
        assert len(counting.compiled) == 1
        counting.compile(schema(source))
        assert len(counting.compiled) == 1


def test_a_failure_is_not_kept() -> None:
    counting = Counting(1 << 30)
    for _ in range(2):
        with pytest.raises(RequestError):
            counting.compile(schema({"$ref": "#"}))
    assert len(counting.compiled) == 2


def test_the_cache_drops_what_was_not_used_for_longest() -> None:
    specs = [schema({"type": "object", "properties": {name: {"type": "string"}}}) for name in "abc"]
    size = Counting(1 << 30).compile(specs[0]).memory_size_bytes  # type: ignore[attr-defined]
    counting = Counting(int(size * 2.5))
    for place in (0, 1, 0, 2, 0, 1):
        counting.compile(specs[place])
    assert counting.compiled == [specs[place].source for place in (0, 1, 2, 1)]
