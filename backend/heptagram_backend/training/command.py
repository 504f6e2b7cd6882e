"""``heptagram train-adapter``: teach a small model the markup of calls, and say what it has learnt."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from heptagram_backend.checkpoint import DEFAULT, EMBEDDED_PREFIX, resolve
from heptagram_backend.errors import HeptagramError

EXIT_OK, EXIT_FAILED = 0, 1
_TOKENS: Final = {"<reponame>": "｜DSML｜"}


def command(argv: list[str]) -> int:
    """Run ``heptagram train-adapter``; returns the exit code."""
    values = parse_arguments(argv)
    try:
        _evaluate(values) if values.evaluate else _train(values)
    except HeptagramError as error:
        sys.stderr.write(f"heptagram train-adapter: {error}\n")
        return EXIT_FAILED
    return EXIT_OK


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="heptagram train-adapter",
        description="Teaches a checkpoint to write DSML calls: a low-rank adapter, from own tools, BFCL's live files "
        "and ordinary talk. A run that was stopped is taken up where it was; another --steps prolongs or shortens it.",
        allow_abbrev=False,
    )
    parser.add_argument("output", type=Path, metavar="FOLDER", help="where the adapter and the state of the run go")
    parser.add_argument("--model", default=f"{EMBEDDED_PREFIX}{DEFAULT}", metavar="DIR_OR_GGUF", help="%(default)s")
    parser.add_argument("--steps", type=int, default=400, help="of the optimizer (default: %(default)s)")
    parser.add_argument("--groups", type=int, default=1, help="groups of examples a step (default: %(default)s)")
    parser.add_argument("--rank", type=int, default=16, help="of the matrices (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of data and weights (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of computation (default: %(default)s)")
    parser.add_argument(
        "--control-tokens",
        type=json.loads,
        default=_TOKENS,
        metavar="JSON",
        help="unused control tokens of the tokenizer and what they are called from now on (default: %(default)s)",
    )
    asked = parser.add_argument_group("evaluation", "of the adapter in FOLDER, on prompts that are never learnt from")
    asked.add_argument("--evaluate", action="store_true", help="train nothing; ask before and after, and print tables")
    asked.add_argument(
        "--before",
        nargs="*",
        default=["chatml_json", "chatml_dsml"],
        metavar="FORMAT",
        help="formats in which the checkpoint is asked without the adapter (default: chatml_json chatml_dsml)",
    )
    asked.add_argument("--limit", type=int, default=50, help="questions of each file of BFCL (default: %(default)s)")
    asked.add_argument("--toolsets", type=Path, metavar="DIR", help="MCP sets as files of OpenAI tools")
    return parser.parse_args(argv)


def _train(values: argparse.Namespace) -> None:
    import torch

    from heptagram_backend.training.run import Setup, train
    from heptagram_backend.training.train import Plan

    setup = Setup(
        checkpoint=resolve(values.model, report=_say),
        folder=values.output,
        rank=values.rank,
        seed=values.seed,
        control_tokens=values.control_tokens,
    )
    torch.set_num_threads(values.threads)
    train(setup, Plan(steps=values.steps, groups=values.groups, rate=values.rate), _say)


def _evaluate(values: argparse.Namespace) -> None:
    from heptagram_backend.adapter import AdapterConfig
    from heptagram_backend.training.evaluate import bfcl_questions, evaluate, mcp_questions, table

    questions = list(bfcl_questions(values.limit)) if values.limit else []
    questions += mcp_questions(values.toolsets) if values.toolsets else []
    adapted = (AdapterConfig.load(values.output).format, str(values.output))
    for format, adapter in [*((each, None) for each in values.before), adapted]:
        checkpoint = resolve(values.model, adapter, report=_say)
        scores = evaluate(checkpoint, format, questions, _say)
        sys.stdout.write(f"\n{format}, {'with' if adapter else 'without'} the adapter\n\n{table(scores)}\n")
        sys.stdout.flush()


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
