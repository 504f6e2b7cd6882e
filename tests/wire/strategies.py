"""Hypothesis strategies for every event."""

from __future__ import annotations

from hypothesis import strategies as st

from heptagram_wire.codec import EVENT_TYPES
from heptagram_wire.events import (
    FINISH_REASONS,
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    Failure,
    Finish,
    Ping,
    ReasoningDelta,
    SpeculativeStats,
    Start,
    Stats,
    TextDelta,
    UnknownEvent,
    Usage,
)

counts = st.integers(0, 2**63)
seconds = st.floats(0, 1e9)
choices = st.integers(0, 8)
texts = st.text(max_size=30)
token_ids = st.none() | st.lists(st.integers(0, 200_000), max_size=5).map(tuple)

usages = st.builds(Usage, counts, counts)
speculative = st.builds(SpeculativeStats, st.lists(counts, min_size=8, max_size=8).map(tuple), counts)
stats = st.builds(Stats, seconds, seconds, counts, counts, counts, counts, counts, speculative)

events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Start, texts, texts, texts, counts, counts, choices),
    st.builds(Ping, choices),
    st.builds(ReasoningDelta, texts, token_ids, choices),
    st.builds(TextDelta, texts, token_ids, choices),
    st.builds(CallStart, counts, texts, texts, choices),
    st.builds(ArgumentsDelta, counts, texts, token_ids, choices),
    st.builds(CallEnd, counts, choices),
    st.builds(Finish, st.sampled_from(FINISH_REASONS), usages, stats, choices),
    st.builds(Failure, texts, texts, st.none() | texts, choices),
    st.builds(UnknownEvent, texts.filter(lambda name: name not in EVENT_TYPES), choices),
)
