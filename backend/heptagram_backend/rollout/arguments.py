"""The flags of ``heptagram repo``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from heptagram_backend.formats import FORMATS

_PORTS = {"http": 8000, "metrics": 8002}


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the command line; argparse prints usage errors and leaves with status 2."""
    parser = argparse.ArgumentParser(
        prog="heptagram repo",
        description="Versions of a model that `heptagram serve --model-repository P` serves. Every command can be "
        "repeated; one that was cut short is ended, or undone, by the next.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    shared = _shared()

    init = commands.add_parser("init", parents=[shared], help="make a repository for a checkpoint")
    _add_release(init)
    add = commands.add_parser("add", parents=[shared], help="write and load a new version; nobody is answered by it")
    _add_release(add)
    add.add_argument("--base", type=int, metavar="N", help="the version whose values it takes over (default: current)")
    commands.add_parser("status", parents=[shared], help="versions, their states, what runs on them")
    canary = commands.add_parser(
        "canary", parents=[shared], help="send a version a constrained and an ordinary request"
    )
    promote = commands.add_parser("promote", parents=[shared], help="canary, then answer everybody with a version")
    shift = commands.add_parser(
        "shift", parents=[shared], help="canary, then let the gateway send a version a part of the conversations"
    )
    drain = commands.add_parser("drain", parents=[shared], help="unload a version once its requests have ended")
    verify = commands.add_parser("verify", parents=[shared], help="read all of a version's checkpoint and compare it")
    for each in (canary, promote, shift, drain, verify):
        each.add_argument("version", type=int, metavar="N")
    shift.add_argument(
        "--weight", type=int, required=True, metavar="PERCENT", help="0 to 100; the current one has the rest"
    )
    for each in (canary, promote, shift):
        each.add_argument("--suite", type=Path, metavar="FILE", help='JSON lines {"request", "calls", "text"} as well')
    rollback = commands.add_parser("rollback", parents=[shared], help="undo the last promotion, or a shift")
    rollback.add_argument("--to", type=int, metavar="N", help="go to this version instead")
    commands.add_parser("gc", parents=[shared], help="delete drained versions, but for the one a rollback goes to")
    values = parser.parse_args(argv)
    if values.command == "init" and not values.model:
        parser.error("init: give a checkpoint with --model")
    return values


def _shared() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--model-repository", type=Path, metavar="P", required=True, help="the folder of the repository"
    )
    shared.add_argument("--host", default="127.0.0.1", help="of the running server (default: %(default)s)")
    for name, port in _PORTS.items():
        shared.add_argument(f"--{name}-port", type=int, default=port, metavar="PORT", help="default: %(default)s")
    shared.add_argument(
        "--control-key-file",
        type=Path,
        metavar="FILE",
        help="the one that `heptagram serve` was given; without it the key of your server on this machine is found",
    )
    shared.add_argument("--json", action="store_true", help="print the outcome as one JSON object")
    shared.add_argument("--dry-run", action="store_true", help="say what would be done, do nothing")
    return shared


def _add_release(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="DIR_OR_GGUF", help="a checkpoint folder, a .gguf file or embedded:NAME")
    parser.add_argument("--adapter", metavar="FOLDER", help="merged into its weights: of `heptagram train-adapter`")
    parser.add_argument("--served-model-name", metavar="NAME", help="how answers name the model")
    parser.add_argument("--format", choices=sorted(FORMATS), help="how the model writes prompts and calls")
    parser.add_argument("--engine", type=_mapping, default={}, metavar="JSON", help='such as {"max_num_seqs": 16}')
    parser.add_argument("--release", type=_mapping, default={}, metavar="JSON", help="other values of release.yaml")


def _mapping(text: str) -> dict[str, Any]:
    value = json.loads(text)  # argparse tells a ValueError as a usage error
    if not isinstance(value, dict):
        raise ValueError(text)
    return value
