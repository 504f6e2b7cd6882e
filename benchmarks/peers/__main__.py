"""``python -m benchmarks.peers [--quick] [--peers NAME ...]``: Heptagram beside other engines, on the same prompts."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Final

from jsonschema import Draft202012Validator

from benchmarks import machine
from benchmarks.__main__ import OUTPUT
from benchmarks.bench_engine import MODEL
from benchmarks.peers.environments import OURS, PEERS, PeerError, python_of
from benchmarks.peers.process import Worker
from benchmarks.peers.worker import Answer, Prompt, Workload
from benchmarks.table import table
from benchmarks.workload import answers
from heptagram_backend.checkpoint import EMBEDDED_PREFIX, resolve, shipped_file
from heptagram_backend.errors import RequestError
from heptagram_backend.preprocess import Preprocessor
from heptagram_backend.release import EngineOptions, Release
from heptagram_wire.requests import encode_request

_MAX_TOKENS: Final = 96
_US: Final = "heptagram"

Runs = Mapping[str, Sequence[Sequence[Answer]]]
"""By name, round and prompt."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three prompts, one round")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], help="default 1 2")
    parser.add_argument("--environments", type=Path, default=Path(".venv-peers"), help="default .venv-peers")
    parser.add_argument("--output", type=Path, default=OUTPUT / "peers.json", help=f"default {OUTPUT}/peers.json")
    options = parser.parse_args(argv)
    where = machine.describe()
    print(machine.headline(where), flush=True)
    absent: dict[str, str] = {}
    pythons = {name: python for name in options.peers if (python := _python(name, options.environments, absent))}
    work = workload(3 if options.quick else 8)
    results = {}
    for threads in options.threads:
        runs = compare(work, pythons, threads, 1 if options.quick else 5, absent)
        print(f"\n## {threads} thread{'s' if threads > 1 else ''}\n\n{report(runs, work.prompts)}", flush=True)
        results[threads] = {name: [[asdict(one) for one in row] for row in rows] for name, rows in runs.items()}
    for name, why in absent.items():
        print(f"\n{name}: not measured. {why}")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    data = {"machine": where, "threads": results, "not_measured": absent}
    options.output.write_text(json.dumps(data, indent=1), encoding="utf-8")
    print(f"\n{options.output}")
    return 0


def workload(count: int) -> Workload:
    """The first ``count`` prompts of the sample whose schema is served strictly."""
    folder = resolve(MODEL)
    preprocessor = Preprocessor(Release("bench", str(folder), "chatml_json", engine=EngineOptions()), folder)
    prompts: list[Prompt] = []
    for request in answers(4 * count, max_tokens=_MAX_TOKENS):
        try:
            ready = preprocessor.prepare(encode_request(request))
        except RequestError:
            continue
        schema = request["response_format"]["json_schema"]["schema"]
        prompts.append(Prompt(ready.prompt_ids, schema, request, _MAX_TOKENS))
    return Workload(str(folder), str(shipped_file(MODEL.removeprefix(EMBEDDED_PREFIX))), prompts[:count])


def compare(
    work: Workload, pythons: Mapping[str, Path], threads: int, rounds: int, absent: dict[str, str]
) -> dict[str, list[list[Answer]]]:
    """All workers answer all prompts, in turn; one that fails goes into ``absent`` and out of the comparison."""
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "workload.json"
        work.write(path)
        workers: dict[str, Worker] = {}
        for name, python in {_US: Path(sys.executable), **pythons}.items():
            module = OURS.module if name == _US else PEERS[name].module
            worker = stack.enter_context(Worker(python, module, path, threads))
            try:
                worker.wait()
                for number in range(len(work.prompts)):  # grammars are compiled, caches warm
                    worker.ask(number)
            except PeerError as error:
                absent[f"{name}, {threads} threads"] = str(error)
                continue
            workers[name] = worker
        runs: dict[str, list[list[Answer]]] = {name: [] for name in workers}
        for _ in range(rounds):
            rows: dict[str, list[Answer]] = {name: [] for name in workers}
            for number in range(len(work.prompts)):
                for name, worker in workers.items():
                    rows[name].append(worker.ask(number))
            for name, row in rows.items():
                runs[name].append(row)
        return runs


def report(runs: Runs, prompts: Sequence[Prompt]) -> str:
    """Medians over prompts and rounds; ratios of tokens a second are medians of the pairs of one prompt and round."""
    header = (
        "engine",
        "tokens/s",
        "decode tokens/s",
        "s an answer",
        "CPU ms a token",
        "valid",
        "Heptagram over it, by time",
        "by CPU",
    )
    rows: list[list[Any]] = []
    for name in runs:
        ours, theirs = ([one for row in runs[who] for one in row] for who in (_US, name))
        ratio = median(_rate(mine) / _rate(other) for mine, other in zip(ours, theirs, strict=True))
        cpu = median(
            (other.cpu_s / other.tokens) / (mine.cpu_s / mine.tokens) for mine, other in zip(ours, theirs, strict=True)
        )
        decode = [one.tokens / one.decode_s for one in theirs if one.decode_s]
        valid = sum(_valid(one.text, prompt.schema) for one, prompt in zip(runs[name][0], prompts, strict=True))
        rows.append(
            [
                OURS.title if name == _US else PEERS[name].title,
                median(map(_rate, theirs)),
                median(decode) if decode else None,
                median(one.seconds for one in theirs),
                median(1e3 * one.cpu_s / one.tokens for one in theirs),
                f"{valid} of {len(prompts)}",
                f"{ratio:.2f}x",
                f"{cpu:.2f}x",
            ]
        )
    return table(header, rows)


def _rate(answer: Answer) -> float:
    return answer.tokens / answer.seconds


def _valid(text: str, schema: Mapping[str, Any]) -> bool:
    try:
        return Draft202012Validator(schema).is_valid(json.loads(text))
    except ValueError:
        return False


def _python(name: str, folder: Path, absent: dict[str, str]) -> Path | None:
    try:
        return python_of(name, folder.absolute(), lambda text: print(text, flush=True))
    except PeerError as error:
        absent[name] = str(error)
        return None


if __name__ == "__main__":
    sys.exit(main())
