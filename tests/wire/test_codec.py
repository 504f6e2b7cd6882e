"""Every event survives a round trip; what is not an event is a ValueError and nothing else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heptagram_wire.codec import (
    EVENT_TYPES,
    decode_event,
    decode_events,
    decode_logprobs,
    encode_event,
    encode_logprobs,
)
from heptagram_wire.events import (
    Event,
    Finish,
    Ping,
    SpeculativeStats,
    Stats,
    TextDelta,
    TokenLogprob,
    UnknownEvent,
    Usage,
)
from tests.wire.strategies import entries, events, texts

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(events)
def test_round_trip(event: Event) -> None:
    text = encode_event(event)
    assert "\n" not in text
    assert next(iter(json.loads(text))) == "type"
    assert decode_event(text) == event
    assert decode_event(text.encode()) == event


@given(events, st.dictionaries(texts.map(lambda name: f"new_{name}"), json_values, max_size=3))
def test_new_fields_are_dropped(event: Event, extra: dict[str, object]) -> None:
    assert decode_event(json.dumps(json.loads(encode_event(event)) | extra)) == event


@given(events, st.data())
def test_a_field_of_a_wrong_type_is_refused_or_harmless(event: Event, data: st.DataObject) -> None:
    """Whatever one field becomes, the reader answers with an event that can be written again, or with ValueError."""
    plain = json.loads(encode_event(event))
    name = data.draw(st.sampled_from(sorted(plain)))
    plain[name] = data.draw(json_values)
    try:
        read = decode_event(json.dumps(plain))
    except ValueError:
        return
    assert decode_event(encode_event(read)) == read


@given(st.text() | st.binary())
def test_garbage_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match="not an event"):
        decode_event(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"type": 1}',
        '{"type": "text_delta"}',
        '{"type": "text_delta", "text": 5}',
        '{"type": "text_delta", "text": "a", "token_ids": [true]}',
        '{"type": "call_end", "index": "0"}',
        '{"type": "call_end", "index": true}',
        '{"type": "call_end", "index": 1.0}',
        '{"type": "finish", "reason": "bored"}',
        '{"type": "finish"}',
        '{"type": "finish", "reason": "stop", "stats": {"decode_s": 1e999}}',
        '{"type": "finish", "reason": "stop", "stats": {"decode_s": NaN}}',
        '{"type": "finish", "reason": "stop", "stats": {"decode_s": 1' + "0" * 400 + "}}",
        '{"type": "finish", "reason": "stop", "usage": []}',
        b'{"type": "\xff"}',
    ],
)
def test_broken_events(text: str | bytes) -> None:
    with pytest.raises(ValueError, match="not a"):
        decode_event(text)


def test_an_unknown_type_is_kept_by_name() -> None:
    assert decode_event('{"type": "audio_delta", "data": "...", "choice": 2}') == UnknownEvent("audio_delta", 2)
    assert decode_event('{"type": "audio_delta", "choice": "first"}') == UnknownEvent("audio_delta")


def test_null_counts_as_absent() -> None:
    assert decode_event('{"type": "finish", "reason": "stop", "usage": null}') == Finish("stop")


def test_the_names_of_the_contract() -> None:
    deltas = {"reasoning_delta", "text_delta", "arguments_delta"}
    assert {"start", "ping", "call_start", "call_end", "choice_end", "finish", "failure"} | deltas == EVENT_TYPES


def test_a_ping_is_small() -> None:
    assert encode_event(Ping()) == '{"type":"ping"}'


def test_finish_carries_the_derived_numbers_for_readers_of_raw_json() -> None:
    steps = SpeculativeStats(acceptance_histogram=(1, 0, 0, 0, 0, 0, 0, 3), num_draft_tokens=28)
    data = json.loads(encode_event(Finish("stop", Usage(10, 25), Stats(speculative_decoding=steps))))
    assert data["usage"] == {"prompt_tokens": 10, "completion_tokens": 25, "total_tokens": 35}
    assert data["stats"]["speculative_decoding"] == {
        "acceptance_histogram": [1, 0, 0, 0, 0, 0, 0, 3],
        "num_draft_tokens": 28,
        "num_accepted_draft_tokens": 21,
        "num_accepted_tokens_per_pos": [3, 3, 3, 3, 3, 3, 3],
        "num_spec_steps": 4,
        "num_spec_tokens": 7,
        "mean_acceptance_length": 6.25,
        "draft_acceptance_rate": 0.75,
    }


def test_events_come_as_an_array_or_as_the_bare_string_of_http() -> None:
    text = encode_event(TextDelta("a"))
    assert decode_events(text) == decode_events([text]) == decode_events([text.encode()]) == (TextDelta("a"),)
    assert decode_events([]) == ()


@given(st.lists(entries, max_size=3).map(tuple))
def test_log_probabilities_alone(values: tuple[TokenLogprob, ...]) -> None:
    assert decode_logprobs(encode_logprobs(values)) == values
    assert decode_logprobs(encode_logprobs(values).encode()) == values


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[{}]", '[{"token": "a", "token_id": 1, "logprob": null}]', "[NaN]"])
def test_broken_log_probabilities(text: str) -> None:
    with pytest.raises(ValueError, match=r"log probabilities|not an event|cannot be"):
        decode_logprobs(text)
