"""Every number of an engine that is public: its field in a snapshot, its name behind ``heptagram_``, what it says.

Names are vLLM's where it has the number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from heptagram_backend.engine_api import EngineSnapshot
from heptagram_backend.histogram import Distribution

PREFIX: Final = "heptagram_"
Kind = Literal["GAUGE", "COUNTER"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A field with ``label`` is a mapping, by the values of that label."""

    field: str
    name: str
    text: str
    label: str = ""


GAUGES: Final = (
    Metric("running", "num_requests_running", "Answers that hold a slot"),
    Metric("waiting", "num_requests_waiting", "Answers in the queue"),
    Metric("slots_used", "slots_used", "Slots of the batch in use"),
    Metric("slots_total", "slots_total", "Slots of the batch"),
    Metric("blocks_held", "kv_blocks_used", "Blocks of the key/value cache that running requests hold"),
    Metric("blocks_cached", "kv_blocks_cached", "Blocks that nobody holds and that an equal beginning may still use"),
    Metric("blocks_free", "kv_blocks_free", "Blocks without content"),
    Metric("blocks_total", "kv_blocks_total", "Blocks of the key/value cache"),
    Metric("kv_cache_usage", "kv_cache_usage_perc", "Held blocks of all blocks; 1 is all of them"),
    Metric("live_matchers", "live_matchers", "Grammar matchers that are not closed"),
    Metric("mask_pool_used", "mask_pool_rows_used", "Rows of the device's mask pool that hold a mask"),
    Metric("mask_pool_total", "mask_pool_rows_total", "Rows of the device's mask pool"),
)
COUNTERS: Final = (
    Metric("finished", "request_success", "Requests that came to their own end", "finished_reason"),
    Metric("failed", "requests_failed", "Requests taken in that ended with an error or a failure event", "code"),
    Metric("cancelled", "requests_cancelled", "Requests that were cut, by who wanted it", "cause"),
    Metric("invalid_outputs", "invalid_outputs", "Finished calls that did not validate against their schema"),
    Metric("prompt_tokens", "prompt_tokens", "Prompt tokens of requests taken in"),
    Metric("generated_tokens", "generation_tokens", "Tokens committed, of answers that have ended"),
    Metric("draft_tokens", "spec_decode_num_draft_tokens", "Drafted tokens that were verified"),
    Metric("accepted_draft_tokens", "spec_decode_num_accepted_tokens", "Drafted tokens that the target accepted"),
    Metric(
        "accepted_by_place",
        "spec_decode_num_accepted_tokens_per_pos",
        "Accepted drafted tokens by their place in the step",
        "position",
    ),
    Metric("replaced_tokens", "replaced_tokens", "Drafts in the place of one that a grammar refused"),
    Metric(
        "cut_tokens",
        "spec_decode_num_cut_tokens",
        "Drafts not verified: a grammar refused them, or they were not worth a row beside what else ran",
        "cause",
    ),
    Metric("forced_tokens", "forced_tokens", "Accepted drafts that were the grammar's forced text"),
    Metric("steps", "steps", "K7 steps of the batch"),
    Metric("preemptions", "num_preemptions", "Times a running answer gave up its blocks and was computed again later"),
    Metric("prefix_hit_tokens", "prefix_cache_hits", "Prompt tokens found in the cache"),
    Metric("masked_rows", "masked_rows", "Rows verified under a grammar's mask"),
    Metric("mask_hits", "mask_hits", "Of these, rows whose mask lay on the device already"),
    Metric("mask_bytes", "mask_bytes", "Bytes of masks uploaded to the device"),
    Metric("graph_misses", "graph_misses", "Parts of steps that no graph was captured for"),
)
HISTOGRAMS: Final = (
    Metric("queue", "request_queue_time_seconds", "From a request's arrival to its first slot"),
    Metric("first_token", "time_to_first_token_seconds", "From a request's arrival to its first token"),
    Metric("inter_token", "inter_token_latency_seconds", "Time a token, shared by the tokens of one step"),
    Metric("end_to_end", "e2e_request_latency_seconds", "From a request's arrival to an answer's end"),
    Metric("prompt_tokens", "request_prompt_tokens", "Prompt tokens of a request"),
    Metric("generation_tokens", "request_generation_tokens", "Tokens of an answer"),
    Metric("accepted", "spec_decode_accepted_tokens_per_step", "Accepted drafts of an answer's step"),
    Metric("planning", "step_planning_seconds", "Drafts of a step, and such masks as a drafter reads"),
    Metric("compile", "grammar_compile_seconds", "From asking for a grammar that is not at hand to its matcher"),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of Prometheus text, but for the labels that all have."""

    name: str
    text: str
    kind: Kind
    value: float
    label: tuple[str, str] | None = None


def numbers(snapshot: EngineSnapshot) -> Iterator[Sample]:
    """The gauges and counters of a snapshot."""
    for metric in GAUGES:
        yield Sample(PREFIX + metric.name, metric.text, "GAUGE", getattr(snapshot, metric.field))
    for metric in COUNTERS:
        name = f"{PREFIX}{metric.name}_total"
        given = getattr(snapshot, metric.field)
        values: Mapping[str, float] = given if metric.label else {"": given}
        for value, count in sorted(values.items()):
            yield Sample(name, metric.text, "COUNTER", count, (metric.label, value) if metric.label else None)


def distributions(snapshot: EngineSnapshot) -> Iterator[Sample]:
    """The histograms of a snapshot as the numbers that they consist of, each bucket behind those that contain it.

    They are called gauges because several readers of Prometheus' text append ``_total`` to the name of a counter.
    """
    for metric in HISTOGRAMS:
        distribution = snapshot.distributions.get(metric.field)
        if distribution is not None:
            yield from _parts(PREFIX + metric.name, metric.text, distribution)


def _parts(name: str, text: str, distribution: Distribution) -> Iterator[Sample]:
    bounds = [*(f"{bound:g}" for bound in distribution.bounds), "+Inf"]
    yield Sample(f"{name}_count", text, "GAUGE", distribution.count)
    for bound, count in reversed([*zip(bounds, distribution.cumulative, strict=True)]):
        yield Sample(f"{name}_bucket", text, "GAUGE", count, ("le", bound))
    yield Sample(f"{name}_sum", text, "GAUGE", distribution.sum)
