"""What bursts of prompts say of an engine: speed, first tokens, gaps between tokens. As tables and for the picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import ceil
from statistics import median
from typing import Any, Final

from jsonschema import Draft202012Validator

from benchmarks.peers.worker import Burst
from benchmarks.table import table

US: Final = "heptagram"
KINDS: Final = {"ordinary": False, "JSON schema": True}
PERCENTS: Final = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class Row:
    """``width`` prompts at once, in bursts of one ``kind``: by engine and round, the bursts of that round."""

    kind: str
    width: int
    rounds: dict[str, list[list[Burst]]]

    def json(self) -> dict[str, Any]:
        return asdict(self)

    def figures(self, name: str) -> dict[str, float]:
        """Medians and percentiles of one engine, times in ms.

        ``first``: from asking to the first token. ``gap``: between two messages of a stream, where the tokens of one
        step come in one message. ``token_ms``: of a token behind the first message, in the median stream.
        """
        bursts = [burst for each in self.rounds[name] for burst in each]
        streams = [stream.times for burst in bursts for stream in burst.streams if stream.times]
        first = [times[0] for times in streams]
        gaps = [late - early for times in streams for early, late in pairwise(sorted(set(times)))]
        behind = [(times[-1] - times[0]) / late for times in streams if (late := len(times) - times.count(times[0]))]
        tokens = sum(burst.tokens for burst in bursts)
        return {
            "tokens_per_s": median(map(speed, self.rounds[name])),
            **{f"first_p{percent}_ms": 1e3 * percentile(first, percent) for percent in PERCENTS},
            **{f"gap_p{percent}_ms": 1e3 * percentile(gaps, percent) for percent in PERCENTS},
            "token_ms": 1e3 * percentile(behind, 50),
            "cpu_ms_per_token": 1e3 * sum(burst.cpu_s for burst in bursts) / tokens,
            "tokens_per_answer": tokens / len(streams),
        }

    def over(self, name: str) -> float:
        """Our speed over that of ``name``: the median of the rounds' ratios."""
        pairs = zip(self.rounds[US], self.rounds[name], strict=True)
        return median(speed(ours) / speed(theirs) for ours, theirs in pairs)

    def answers(self, name: str) -> list[str]:
        """The texts of the first round, in the order of the prompts."""
        return [stream.text for burst in self.rounds[name][0] for stream in burst.streams]


def speed(bursts: Sequence[Burst]) -> float:
    """Tokens a second over bursts that followed each other."""
    return sum(burst.tokens for burst in bursts) / sum(burst.seconds for burst in bursts)


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest of ``values`` that at least ``percent`` of them do not exceed; 0 where there is none."""
    return sorted(values)[max(0, ceil(len(values) * percent / 100) - 1)] if values else 0.0


def report(rows: Sequence[Row], titles: Mapping[str, str], schemas: Sequence[Mapping[str, Any]]) -> str:
    """A table for each kind; an engine's answers are valid where they validate against the schema of their prompt."""
    parts = []
    for kind in dict.fromkeys(row.kind for row in rows):
        body = [
            [titles[name], row.width, *_cells(row, name, schemas)]
            for row in rows
            if row.kind == kind
            for name in titles
            if name in row.rounds
        ]
        valid = ("valid",) if KINDS[kind] else ()
        parts.append(f"{kind}\n\n{table((*_HEAD, *valid), body)}")
    return "\n\n".join(parts)


def panels(rows: Sequence[Row], titles: Mapping[str, str]) -> dict[str, dict[str, dict[int, dict[str, float]]]]:
    """What the picture is drawn from: by kind, engine and number of streams, the figures."""
    return {
        kind: {
            title: {row.width: row.figures(name) for row in rows if row.kind == kind}
            for name, title in titles.items()
            if name in rows[0].rounds
        }
        for kind in dict.fromkeys(row.kind for row in rows)
    }


_HEAD: Final = (
    "engine",
    "streams",
    "tokens/s",
    "Heptagram K7 over it",
    "first token, ms: p50 / p90 / p99",
    "gap, ms: p50 / p90 / p99",
    "ms a token",
    "CPU ms a token",
    "tokens an answer",
)


def _cells(row: Row, name: str, schemas: Sequence[Mapping[str, Any]]) -> list[str | float]:
    found = row.figures(name)
    first, gap = (" / ".join(f"{found[f'{what}_p{at}_ms']:.0f}" for at in PERCENTS) for what in ("first", "gap"))
    rest = [found[key] for key in ("token_ms", "cpu_ms_per_token", "tokens_per_answer")]
    cells: list[str | float] = [found["tokens_per_s"], f"{row.over(name):.2f}x", first, gap, *rest]
    if KINDS[row.kind]:
        texts = row.answers(name)
        cells.append(f"{sum(map(valid, texts, schemas))} of {len(texts)}")
    return cells


def valid(text: str, schema: Mapping[str, Any]) -> bool:
    """Whether ``text`` is JSON that validates."""
    try:
        return Draft202012Validator(schema).is_valid(json.loads(text))
    except ValueError:
        return False
