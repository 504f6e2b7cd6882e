"""Suites on schemas and grammars: tool sets beside XGrammar's own tags by number of tools, and hostile schemas."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np

from benchmarks.grammar_arms import FORMS, BuiltIn, Clock, Form, Ours, declared
from benchmarks.hostile import HOSTILE
from benchmarks.steps import Suite
from benchmarks.table import table
from benchmarks.turns import in_turn
from heptagram_backend.compile import GrammarCompiler
from heptagram_backend.constraint import Grammar
from heptagram_backend.errors import RequestError
from heptagram_backend.limits import GrammarLimits
from heptagram_backend.masks import words_for
from heptagram_backend.trial import Trial
from heptagram_backend.trial.setup import Setup

TOOLS: Final = (1, 10, 60, 128)
_QUICK_TOOLS: Final = (1, 10, 128)
_MASKS: Final = 32


def grammars(*, quick: bool) -> Iterator[Suite]:
    """All suites of this part."""
    yield tool_counts(FORMS, _QUICK_TOOLS if quick else TOOLS, 1 if quick else 5, warm_up=not quick)
    yield from (hostile(form) for form in FORMS[: 1 if quick else 2])


def tool_counts(forms: Sequence[Form], counts: Sequence[int], rounds: int, *, warm_up: bool = True) -> Suite:
    """Both ways in turn, by number of tools, as they are and without those that bound a string's length."""
    rows: list[list[Any]] = []
    data: dict[str, Any] = {}
    for form, lengths in product(forms, (True, False)):
        ours, builtin = Ours(form), BuiltIn(form)
        for count in counts:
            tools = declared(count, lengths=lengths)
            arms = {"ours": partial(ours.run, tools), "built-in": partial(builtin.run, tools)}
            turns = in_turn(arms, rounds, warm_up=warm_up)
            name = f"{form.format}, {count}{'' if lengths else ' without lengths'}"
            rows += [[name, arm, *(turns.median(arm, key) for key in _COLUMNS.values())] for arm in arms]
            data[name] = {"faster": [turns.ratio("built-in", "ours", key) for key in _FASTER.values()]}
            data[name]["runs"] = turns.json()
    faster = [[name, *(f"{ratio:.2f}x" for ratio in one["faster"])] for name, one in data.items()]
    tables = table(("format, tools", "tag", *_COLUMNS), rows), table(("ours faster than built-in", *_FASTER), faster)
    return Suite("Tool sets to grammars", "\n\n".join(tables), data)


def hostile(form: Form, names: Sequence[str] = tuple(HOSTILE)) -> Suite:
    """Each schema on a request's way at the usual limits, as the parameters of the one tool that must be called."""
    ours, limits = Ours(form), GrammarLimits()
    seconds, memory, cache = limits.compile_seconds, limits.compile_bytes, limits.cache_bytes
    setup = Setup(form.tokens(), ours.width, [form.end], seconds=seconds, memory=memory, cache=cache)
    compiler = GrammarCompiler(ours.factory, lambda: None, Trial(setup), ours.width)
    try:
        measured = {name: _hostile(ours, compiler, HOSTILE[name]()) for name in names}
    finally:
        compiler.close()
    rows = [[name, *(one.get(column) for column in _HOSTILE)] for name, one in measured.items()]
    text = (
        f'{table(("schema", *_HOSTILE), rows)}\n\n"until known" is how long a request waits for its grammar or its '
        "refusal, with the trial in a process of its own where there is one."
    )
    return Suite(f"Hostile schemas, {form.format}", text, measured)


def _hostile(ours: Ours, compiler: GrammarCompiler, schema: Mapping[str, Any]) -> dict[str, Any]:
    ours.factory.forget()
    found: dict[str, Any] = {}
    clock = Clock()
    try:
        request = ours.read([{"type": "function", "function": {"name": "f", "parameters": schema}}])
        clock.stop()
        found["read and walk, CPU ms"] = clock.cpu_ms
        clock = Clock()
        spec = ours.spec(request)
        grammar = compiler.start(spec).result()
    except RequestError as error:
        known = clock.stop()
        found.setdefault("read and walk, CPU ms", clock.cpu_ms)
        return found | {"outcome": error.wire.code, "until known, ms": known}
    found |= {"outcome": "admitted", "until known, ms": clock.stop()}
    masks = _first_masks(grammar, ours.width)
    grammar.close()
    ours.factory.forget()
    clock = Clock()
    ours.factory.compile(spec)
    clock.stop()
    return found | {
        "compile, CPU ms": clock.cpu_ms,
        "first mask, ms": masks[0],
        "slowest of 32 masks, ms": max(masks),
    }


def _first_masks(grammar: Grammar, width: int) -> list[float]:
    """Milliseconds for each mask of a walk that takes any token that is allowed; forced text is passed over."""
    row, chance = np.zeros(words_for(width), np.int32), random.Random(1)
    times: list[float] = []
    while len(times) < _MASKS and not grammar.terminated:
        if forced := grammar.forced_text():
            grammar.accept_text(forced)
        row[:] = -1
        clock = Clock()
        grammar.fill(row)
        times.append(clock.stop())
        words = np.flatnonzero(row)
        word = int(words[chance.randrange(len(words))])
        bits = [bit for bit in range(32) if int(row[word]) >> bit & 1 and word * 32 + bit < width]
        assert grammar.accept(word * 32 + chance.choice(bits))
    return times


# Columns and what fills them. "new" is with reading and walking, which the built-in way has not.
_COLUMNS: Final = {
    "walk, CPU ms": "walk_ms",
    "new, ms": "first_ms",
    "new, CPU ms": "first_cpu_ms",
    "one tool changed, CPU ms": "changed_cpu_ms",
    "again, ms": "again_ms",
    "MiB": "mib",
}
_FASTER: Final = {"new, by time": "first_ms", "new, by CPU time": "first_cpu_ms", "one changed": "changed_cpu_ms"}
_HOSTILE: Final = (
    "outcome",
    "read and walk, CPU ms",
    "until known, ms",
    "compile, CPU ms",
    "first mask, ms",
    "slowest of 32 masks, ms",
)
