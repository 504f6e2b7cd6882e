"""Hypothesis strategies for every event."""

from __future__ import annotations

from hypothesis import strategies as st

from heptagram_wire.codec import EVENT_TYPES
from heptagram_wire.events import (
    FINISH_REASONS,
    ArgumentsDelta,
    CallEnd,
    CallStart,
    ChoiceEnd,
    Event,
    Failure,
    Finish,
    Ping,
    ReasoningDelta,
    SpeculativeStats,
    Start,
    Stats,
    TextDelta,
    TokenLogprob,
    TopLogprob,
    UnknownEvent,
    Usage,
)

counts = st.integers(0, 2**63)
seconds = st.floats(0, 1e9)
choices = st.integers(0, 8)
texts = st.text(max_size=30)
raw = st.none() | st.lists(st.integers(0, 255), max_size=4).map(tuple)
logprob = st.floats(-1e3, 0)
top_logprobs = st.builds(TopLogprob, texts, counts, logprob, raw)
entries = st.builds(TokenLogprob, texts, counts, logprob, raw, st.lists(top_logprobs, max_size=2).map(tuple))
logprobs = st.none() | st.lists(entries, max_size=2).map(tuple)
token_ids = st.none() | st.lists(st.integers(0, 200_000), max_size=5).map(tuple)

usages = st.builds(Usage, counts, counts)
speculative = st.builds(SpeculativeStats, st.lists(counts, min_size=8, max_size=8).map(tuple), counts)
stats = st.builds(Stats, seconds, seconds, *[counts] * 5, speculative, st.none() | counts, *[counts] * 3)

events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Start, texts, texts, texts, counts, counts, choices),
    st.builds(Ping, choices),
    st.builds(ReasoningDelta, texts, token_ids, logprobs, choices),
    st.builds(TextDelta, texts, token_ids, logprobs, choices),
    st.builds(CallStart, counts, texts, texts, choices),
    st.builds(ArgumentsDelta, counts, texts, token_ids, logprobs, choices),
    st.builds(CallEnd, counts, choices),
    st.builds(ChoiceEnd, st.sampled_from(FINISH_REASONS), counts, choices),
    st.builds(Finish, st.sampled_from(FINISH_REASONS), usages, stats, choices),
    st.builds(Failure, texts, texts, st.none() | texts, choices),
    st.builds(UnknownEvent, texts.filter(lambda name: name not in EVENT_TYPES), choices),
)
