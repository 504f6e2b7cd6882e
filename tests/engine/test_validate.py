"""The last check of a finished call or answer: what it finds, what it never does, and what the client is told."""

from __future__ import annotations

import urllib.request
from typing import Any

import pytest

from heptagram_backend.detokenize import Detokenizer
from heptagram_backend.emit import Emitter
from heptagram_backend.formats import load_format
from heptagram_backend.generation import OutputSpec
from heptagram_backend.validate import CHECKED_FORMATS, InvalidOutputError, OutputValidator
from heptagram_wire.events import FinishReason, TextDelta

_NUMBER = {"type": "object", "properties": {"a": {"type": "integer", "not": {"const": 7}}}, "required": ["a"]}
_BYTES = [bytes([value]) for value in range(256)]


def _emitter(text: str, *, answer: Any = None, stops: tuple[str, ...] = (), may_be_cut: bool = False) -> Emitter:
    """One that has read ``text``."""
    output = OutputSpec("chatml_json", parse_calls=True, schemas={"f": _NUMBER}, answer=answer)
    emitter = Emitter(
        detokenizer=Detokenizer(_BYTES),
        parser=load_format("chatml_json").parser(output),
        validator=OutputValidator(output.schemas, output.answer, may_be_cut=may_be_cut),
        stops=stops,
    )
    for token in text.encode():
        emitter.push(token)
    return emitter


@pytest.mark.parametrize("text", ['{"a": 1}', ' {"a":-3}\n'])
def test_a_valid_answer_ends_as_it_did(text: str) -> None:
    emitter = _emitter(text, answer=_NUMBER)
    assert emitter.finish("stop") == "stop"
    assert emitter.take() == [TextDelta(text)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a": 7}', "the answer is not valid at $.a: "),
        ('{"a": 1.5}', "the answer is not valid at $.a: "),
        ("[]", "the answer is not valid at $: "),
        ("", "the answer is not valid JSON"),
        ('{"a": 1', "the answer is not valid JSON"),
        ('{"a": 7, "a": 1}', "a key stands twice"),
        ('{"a": NaN}', "NaN is no JSON"),
    ],
)
def test_an_invalid_answer_is_told_with_its_place_and_its_text_still_comes(text: str, told: str) -> None:
    emitter = _emitter(text, answer=_NUMBER)
    with pytest.raises(InvalidOutputError) as caught:
        emitter.finish("stop")
    assert (caught.value.wire.code, told in caught.value.wire.message) == ("invalid_output", True)
    assert emitter.take() == ([TextDelta(text)] if text else [])


@pytest.mark.parametrize("reason", ["length", "cancelled"])
def test_a_cut_answer_is_not_checked(reason: FinishReason) -> None:
    assert _emitter('{"a": ', answer=_NUMBER).finish(reason) == reason


def test_an_answer_cut_by_the_caller_s_own_stop_is_not_checked() -> None:
    assert _emitter('{"a": 1, "stop', answer=_NUMBER, stops=("stop",)).finish("stop") == "stop"
    assert _emitter('{"a": ', answer=_NUMBER, may_be_cut=True).finish("stop") == "stop"
    with pytest.raises(InvalidOutputError):
        _emitter('{"a": 7}', answer=_NUMBER, may_be_cut=True).finish("stop")


def test_calls_are_checked_by_their_own_schema_and_then_there_is_no_answer() -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {"a": %d}}\n</tool_call>'
    assert _emitter(call % 1, answer={"type": "array"}).finish("stop") == "tool_calls"
    with pytest.raises(InvalidOutputError, match=r"the arguments of 'f' are not valid at \$\.a"):
        _emitter(call % 7)


def test_free_text_is_not_kept() -> None:
    emitter = _emitter("no JSON")
    assert emitter.finish("stop") == "stop"
    assert emitter.take() == [TextDelta("no JSON")]


def test_multiples_are_those_of_the_written_number() -> None:
    check = OutputValidator({}, {"multipleOf": 0.01}).check_text
    for text in ("0.07", "19.99", "1.1", "3", "-0.29"):
        check(text)
    for text in ("0.075", "0.001"):
        with pytest.raises(InvalidOutputError, match=r"is not a multiple of 0\.01"):
            check(text)


def test_nothing_is_ever_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference may stand where the walk does not come, because nothing satisfies what is beside it."""
    fetched: list[object] = []
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, *_, **__: fetched.append(url))
    remote = {"type": "integer", "properties": {"a": {"$ref": "http://169.254.169.254/latest"}}}
    schema = {"anyOf": [{"allOf": [{"type": "string"}, remote]}, {"type": "object"}]}
    with pytest.raises(InvalidOutputError, match="not to be checked"):
        OutputValidator({"f": schema}).check_call("f", '{"a": 1}')
    assert not fetched


@pytest.mark.parametrize("loop", [{"$ref": "#"}, {"not": {"$ref": "#"}}, {"anyOf": [{"$ref": "#"}, {}]}])
def test_a_schema_without_end_and_a_value_without_bottom_end_the_check_alone(loop: dict[str, Any]) -> None:
    """Out of stack the library may panic, which no `except Exception` would catch."""
    with pytest.raises(InvalidOutputError, match="not to be checked"):
        OutputValidator({}, loop).check_text("1")
    with pytest.raises(InvalidOutputError):
        OutputValidator({}, {"items": {"$ref": "#"}}).check_text("[" * 2_000 + "]" * 2_000)


def test_references_inside_the_schema_are_followed() -> None:
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}}
    check = OutputValidator({}, schema).check_text
    check("[[], [[]]]")
    with pytest.raises(InvalidOutputError, match=r"not valid at \$\[0\]\[0\]"):
        check("[[1]]")


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("date", "2024-02-29", "2023-02-29"),
        ("ipv4", "1.2.3.4", "1.2.3.04"),
        ("ipv6", "::1", "::g"),
        ("json-pointer", "/a~0", "/a~2"),
    ],
)
def test_formats_that_are_checked(name: str, right: str, wrong: str) -> None:
    assert name in CHECKED_FORMATS
    check = OutputValidator({}, {"format": name}).check_text
    check(f'"{right}"')
    with pytest.raises(InvalidOutputError):
        check(f'"{wrong}"')
