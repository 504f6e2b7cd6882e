"""``python -m benchmarks.peers [--quick] [--only PART]``: Heptagram beside other engines, on the same prompts.

``single``: one constrained answer at a time. ``streams``: 1 to 16 at once, ordinary and constrained, with a picture.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks import machine
from benchmarks.__main__ import OUTPUT
from benchmarks.bench_engine import MODEL
from benchmarks.peers import bursts, streams
from benchmarks.peers.environments import OURS, PEERS, PLOT, PeerError, python_of
from benchmarks.peers.process import Worker
from benchmarks.peers.worker import Answer, Prompt, Workload
from benchmarks.table import table
from benchmarks.workload import answers
from heptagram_backend.checkpoint import EMBEDDED_PREFIX, resolve, shipped_file
from heptagram_backend.errors import RequestError
from heptagram_backend.preprocess import Preprocessor
from heptagram_backend.release import EngineOptions, Release
from heptagram_backend.tokenizer import CheckpointTokenizer
from heptagram_wire.requests import encode_request

_MAX_TOKENS: Final = 96
_US: Final = bursts.US
_PARTS: Final = ("single", "streams")

Runs = Mapping[str, Sequence[Sequence[Answer]]]
"""By name, round and prompt."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer prompts and streams, one round")
    parser.add_argument("--only", nargs="+", choices=_PARTS, default=_PARTS, metavar="PART", help=", ".join(_PARTS))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], help="default 1 2; streams take the most")
    parser.add_argument("--rounds", type=int, help="default 5, of streams 3")
    parser.add_argument("--minutes", type=float, default=inf, help="of streams, begin no round that would end later")
    parser.add_argument("--environments", type=Path, default=Path(".venv-peers"), help="default .venv-peers")
    parser.add_argument("--output", type=Path, default=OUTPUT / "peers.json", help=f"default {OUTPUT}/peers.json")
    parser.add_argument("--picture", type=Path, default=OUTPUT / "peers.png", help=f"default {OUTPUT}/peers.png")
    options = parser.parse_args(argv)
    where = machine.describe()
    print(machine.headline(where), flush=True)
    absent: dict[str, str] = {}
    pythons = {name: python for name in options.peers if (python := _python(name, options.environments, absent))}
    data: dict[str, Any] = {"machine": where, "not_measured": absent}
    if "single" in options.only:
        work, results = workload(3 if options.quick else 8), {}
        for threads in options.threads:
            runs = compare(work, pythons, threads, 1 if options.quick else options.rounds or 5, absent)
            print(f"\n## {_threads(threads)}\n\n{report(runs, work.prompts)}", flush=True)
            results[threads] = {name: [[asdict(one) for one in row] for row in rows] for name, rows in runs.items()}
        data["threads"] = results
    if "streams" in options.only:
        data["streams"] = _streams(options, where, pythons, absent)
    for name, why in absent.items():
        print(f"\n{name}: not measured. {why}")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(data, indent=1), encoding="utf-8")
    print(f"\n{options.output}")
    return 0


def _streams(
    options: argparse.Namespace, where: Mapping[str, Any], pythons: Mapping[str, Path], absent: dict[str, str]
) -> list[dict[str, Any]]:
    """Measure, print the tables, draw the picture; what came of it, as JSON."""
    threads, rounds = max(options.threads), 1 if options.quick else options.rounds or 3
    widths = (1, 4) if options.quick else streams.WIDTHS
    work = workload(max(widths))
    rows = streams.compare(work, pythons, threads, rounds, absent, widths=widths, minutes=options.minutes, say=_say)
    titles = {name: arm.title for name, arm in streams.ARMS.items()}
    tables = bursts.report(rows, titles, [prompt.schema for prompt in work.prompts])
    print(f"\n## Streams at once, {_threads(threads)}\n\n{tables}", flush=True)
    tokens = [len(prompt.ids) for prompt in work.prompts]
    note = (
        f"SmolLM2-135M-Instruct, bfloat16, {where['processor']}, {_threads(threads)}; prompts of {min(tokens)} to "
        f"{max(tokens)} tokens,\nanswers of at most {_MAX_TOKENS}, greedy; {len(rows[0].rounds[_US])} rounds in turn; "
        f"commit {where['commit']}, {where['date'][:10]}"
    )
    _draw({"note": note, "panels": bursts.panels(rows, titles)}, options, absent)
    return [row.json() for row in rows]


def _draw(figures: Mapping[str, Any], options: argparse.Namespace, absent: dict[str, str]) -> None:
    if (python := _python(PLOT.title, options.environments, absent)) is None:
        return
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    command = [str(python), "-m", PLOT.module, str(options.picture.absolute())]
    done = subprocess.run(command, input=json.dumps(figures), cwd=machine.ROOT, text=True, check=False)
    if done.returncode:
        absent["picture"] = f"drawing it ended with {done.returncode}"
    else:
        print(f"\n{options.picture}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


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
    gguf = shipped_file(MODEL.removeprefix(EMBEDDED_PREFIX))
    return Workload(str(folder), str(gguf), prompts[:count], sorted(CheckpointTokenizer(folder).eos_ids))


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
        valid = sum(bursts.valid(one.text, prompt.schema) for one, prompt in zip(runs[name][0], prompts, strict=True))
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


def _python(name: str, folder: Path, absent: dict[str, str]) -> Path | None:
    try:
        return python_of(name, folder.absolute(), lambda text: print(text, flush=True))
    except PeerError as error:
        absent[name] = str(error)
        return None


if __name__ == "__main__":
    sys.exit(main())
