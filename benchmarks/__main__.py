"""``python -m benchmarks [--quick] [--only SUITE ...]``: the suites on the embedded model, as tables and as JSON."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is imported; see engines/__init__.py

from benchmarks import machine

if TYPE_CHECKING:
    from benchmarks.steps import Suite

OUTPUT: Final = Path("bench-results")
DRAFTER: Final = "HEPTAGRAM_BENCH_DRAFTER"  # a DSpark drafter's folder, by default the shipped one
_MAX_TOKENS: Final = 96
_QUICK_TOKENS: Final = 48


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few prompts and rounds: some five minutes on two cores")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="SUITE", help=", ".join(PARTS))
    parser.add_argument("--threads", type=int, default=1, help="compute threads (default 1)")
    parser.add_argument("--output", type=Path, default=OUTPUT / "bench.json", help=f"default {OUTPUT}/bench.json")
    options = parser.parse_args(argv)
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
    where = machine.describe()
    print(machine.headline(where), flush=True)
    results = {}
    for suite in run(options.only, quick=options.quick, threads=options.threads):
        print(f"\n## {suite.title}\n\n{suite.text}", flush=True)
        results[suite.title] = suite.data
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({"machine": where, "suites": results}, indent=1), encoding="utf-8")
    print(f"\n{options.output}")
    return 0


def run(names: Sequence[str], *, quick: bool, threads: int) -> Iterator[Suite]:
    """The suites called ``names``, each as soon as it is done."""
    yield from _on_an_engine([name for name in names if name in SUITES], quick=quick, threads=threads)
    if OPS in names:
        from benchmarks.bench_ops import step_against_the_usual_way

        yield step_against_the_usual_way((8, 64), 3 if quick else 15)
    if GRAMMAR in names:
        from benchmarks.bench_grammar import grammars

        yield from grammars(quick=quick)
    if GATEWAY in names:
        from benchmarks.bench_gateway import scripted, smollm2
        from benchmarks.workload import tool_calls

        yield scripted(7 if quick else 41)
        yield smollm2(tool_calls(1 if quick else 4, max_tokens=_MAX_TOKENS), 3 if quick else 9)


def _on_an_engine(names: Sequence[str], *, quick: bool, threads: int) -> Iterator[Suite]:
    if not names:
        return
    from benchmarks.bench_engine import BenchEngine
    from benchmarks.workload import prepared

    engine = BenchEngine(threads=threads)
    requests = prepared(engine.preprocessor, 8, max_tokens=_QUICK_TOKENS if quick else _MAX_TOKENS)
    try:
        for name in names:
            yield SUITES[name](engine, requests, quick)
    finally:
        engine.close()


def _masks(engine: BenchEngine, requests: Requests, quick: bool) -> Suite:  # noqa: ARG001
    from benchmarks.steps import masks

    return masks(engine, requests)


def _strict(engine: BenchEngine, requests: Requests, quick: bool) -> Suite:
    from benchmarks.steps import strict_against_ordinary

    return strict_against_ordinary(engine, requests[: 2 if quick else 8], 2 if quick else 5)


def _drafters(engine: BenchEngine, requests: Requests, quick: bool) -> Suite:  # noqa: ARG001
    from benchmarks.bench_engine import BenchEngine
    from benchmarks.drafters import SHIPPED, drafters
    from benchmarks.workload import by_kind

    work = by_kind(engine.preprocessor, 2 if quick else 8, max_tokens=_QUICK_TOKENS if quick else _MAX_TOKENS)
    drafter = Path(os.environ.get(DRAFTER, SHIPPED))
    drafting = BenchEngine(threads=engine.threads, drafter=drafter) if drafter.is_dir() else None
    try:
        return drafters(engine, drafting, work, 1 if quick else 3)
    finally:
        if drafting is not None:
            drafting.close()


def _batches(engine: BenchEngine, requests: Requests, quick: bool) -> Suite:
    from benchmarks.steps import batches

    return batches(engine, requests, 1 if quick else 5, warm_up=not quick)


def _sampling(engine: BenchEngine, requests: Requests, quick: bool) -> Suite:
    from benchmarks.sampling import sampling

    return sampling(engine, requests[: 2 if quick else 8], 2 if quick else 5)


def _ensemble(engine: BenchEngine, requests: Requests, quick: bool) -> Suite:  # noqa: ARG001
    from benchmarks.served import ensemble_against_engine
    from benchmarks.workload import tool_calls

    return ensemble_against_engine(tool_calls(1 if quick else 4, max_tokens=_MAX_TOKENS), 3 if quick else 9)


def _pipeline(engine: BenchEngine, requests: Requests, quick: bool) -> Suite:
    from benchmarks.pipeline import pipeline

    return pipeline(engine, requests, 2 if quick else 9)


def _blocks(engine: BenchEngine, requests: Requests, quick: bool) -> Suite:  # noqa: ARG001
    from benchmarks.paging import blocks

    return blocks(3 if quick else 9)


def _prefix(engine: BenchEngine, requests: Requests, quick: bool) -> Suite:  # noqa: ARG001
    from benchmarks.paging import shared_prefix

    return shared_prefix(2 if quick else 7)


def _long_prompt(engine: BenchEngine, requests: Requests, quick: bool) -> Suite:  # noqa: ARG001
    from benchmarks.paging import long_prompt

    return long_prompt(1 if quick else 5)


if TYPE_CHECKING:
    from benchmarks.bench_engine import BenchEngine
    from heptagram_backend.generation import GenerationRequest

    Requests = Sequence[GenerationRequest]

# `masks` comes first: it needs an engine that has seen nothing.
SUITES: Final[Mapping[str, Callable[[BenchEngine, Requests, bool], Suite]]] = {
    "masks": _masks,
    "strict": _strict,
    "drafters": _drafters,
    "batches": _batches,
    "sampling": _sampling,
    "pipeline": _pipeline,
    "blocks": _blocks,
    "prefix": _prefix,
    "long-prompt": _long_prompt,
    "ensemble": _ensemble,
}
# These bring what they need.
OPS: Final = "ops"
GRAMMAR: Final = "grammar"
GATEWAY: Final = "gateway"
PARTS: Final = (*SUITES, OPS, GRAMMAR, GATEWAY)

if __name__ == "__main__":
    sys.exit(main())
