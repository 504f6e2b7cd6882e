"""The flags of ``heptagram train-drafter``."""

from __future__ import annotations

import argparse
from pathlib import Path

from heptagram_backend.formats import FORMATS


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the command line; argparse prints usage errors and leaves with status 2."""
    parser = argparse.ArgumentParser(
        prog="heptagram train-drafter",
        description="Train a DSpark drafter on a target's own answers. Every part can be repeated: answers that are "
        "there are kept, and training goes on from its last checkpoint.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--model", metavar="DIR_OR_NAME", required=True, help="the target: a folder or embedded:NAME")
    parser.add_argument("--output", type=Path, metavar="FOLDER", required=True, help="where the drafter goes")
    parser.add_argument("--answers", type=Path, metavar="FOLDER", required=True, help="where the target's answers are")
    parser.add_argument(
        "--prompts", metavar="N_OR_FILE", help="answer this many drawn prompts first, or those of a file of JSON lines"
    )
    parser.add_argument("--format", choices=sorted(FORMATS), default="chatml_json", help="how prompts are written")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of answers, weights and order")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="compute threads")
    _add_answers(parser.add_argument_group("answers"))
    _add_shape(parser.add_argument_group("drafter"))
    _add_training(parser.add_argument_group("training"))
    return parser.parse_args(argv)


def _add_answers(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--sampled", type=float, default=0.3, metavar="SHARE", help="of the answers, drawn at 0.7")
    group.add_argument("--longest-prompt", type=int, default=704, metavar="TOKENS", help="longer ones are left out")
    group.add_argument("--max-model-len", type=int, default=1024, metavar="TOKENS", help="prompt and answer")
    group.add_argument("--max-num-seqs", type=int, default=8, metavar="N", help="answers at once")


def _add_shape(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--layers", type=int, default=2, metavar="N", help="of the drafter")
    group.add_argument("--intermediate", type=int, default=0, metavar="N", help="width of its MLPs; 0: the target's")
    group.add_argument("--taps", type=int, default=4, metavar="N", help="layers of the target that it reads")
    group.add_argument("--block-size", type=int, default=7, metavar="K", help="drafts at once")
    group.add_argument("--markov-rank", type=int, default=64, metavar="N", help="of the Markov head; 0: none")
    group.add_argument("--markov", choices=("vanilla", "gated", "rnn"), default="vanilla", help="the Markov head")
    group.add_argument("--draft-vocab", type=int, default=8192, metavar="N", help="most frequent tokens; 0: all")


def _add_training(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--steps", type=int, default=2000, metavar="N", help="0: only write answers")
    group.add_argument("--batch", type=int, default=4, metavar="N", help="answers a step")
    group.add_argument("--anchors", type=int, default=32, metavar="N", help="blocks of an answer")
    group.add_argument("--prompt-anchors", type=int, default=0, metavar="N", help="blocks of a prompt")
    group.add_argument("--learning-rate", type=float, default=6e-4, metavar="X")
    group.add_argument("--cross-entropy", type=float, default=0.1, metavar="X", help="weight of this loss")
    group.add_argument("--distance", type=float, default=0.9, metavar="X", help="weight of the distributions' distance")
    group.add_argument("--confidence", type=float, default=1.0, metavar="X", help="weight of the confidence's loss")
    group.add_argument("--cooldown", type=float, default=0.3, metavar="SHARE", help="of the steps, at a falling rate")
    group.add_argument("--device", default="cpu", help="a device of torch, such as cuda")
    group.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="of products")
    group.add_argument("--checkpoint-every", type=int, default=50, metavar="STEPS")
    group.add_argument("--evaluate-every", type=int, default=500, metavar="STEPS", help="0: only at the end")
