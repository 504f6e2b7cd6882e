"""``heptagram COMMAND ...``: finds the command and runs it.

Commands are entry points of the group ``heptagram.commands``, each a ``command(argv) -> exit code``. Only the chosen
one is imported, so that the light client never touches the backend.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points, version
from typing import cast

GROUP = "heptagram.commands"
EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130

Command = Callable[[list[str]], int]

_ABOUT = {
    "chat": "send one prompt and stream the answer to the terminal",
    "demo": "send one tool call over each front of a running server and check the answers",
    "doctor": "say what is here, what is missing and what to do",
    "gateway": "serve OpenAI's HTTP API in front of a running server",
    "repo": "add, try, promote and roll back versions of a served model",
    "serve": "start the Triton server with its models and keep it running",
    "train-adapter": "teach a small model to write DSML calls",
    "train-drafter": "train a DSpark drafter on what a model answers",
}
# Which extra brings what a project package needs.
_EXTRAS = {"heptagram_backend": "backend", "heptagram_kernels": "backend", "heptagram_gateway": "gateway"}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    commands = {entry.name: entry for entry in entry_points(group=GROUP)}
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        sys.stdout.write(_help(commands))
        return EXIT_OK if arguments else EXIT_USAGE
    if name == "--version":
        sys.stdout.write(f"heptagram {version('heptagram')}\n")
        return EXIT_OK
    if name not in commands:
        return _fail(f"unknown command {name!r}; there are: {', '.join(sorted(commands))}", EXIT_USAGE)
    return _run(commands[name], arguments[1:])


def _run(entry: EntryPoint, arguments: list[str]) -> int:
    try:
        return cast(Command, entry.load())(arguments)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(entry.module.partition(".")[0])
        if extra is None or error.name is None:
            raise
        return _fail(
            f"`{entry.name}` needs {error.name}, which is not installed: pip install 'heptagram[{extra}]'", EXIT_FAILED
        )
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _help(names: Iterable[str]) -> str:
    lines = "".join(f"  {name:<15}{_ABOUT.get(name, '')}".rstrip() + "\n" for name in sorted(names))
    return (
        "usage: heptagram COMMAND ...\n\ncommands:\n"
        + lines
        + "\n`heptagram COMMAND --help` tells more; `heptagram --version` prints the version.\n"
    )


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"heptagram: {message}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
