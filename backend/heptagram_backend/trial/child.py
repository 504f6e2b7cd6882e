"""A program that compiles constraints to find out whether they can be: ``python -m heptagram_backend.trial.child``.

Lines of JSON come in on stdin and go out on stdout. The first one is the vocabulary, each other one a constraint; an
answer is an object, empty where the constraint compiles. It ends when stdin does, also in the middle of a compile: a
thread of its own reads.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
from queue import SimpleQueue
from typing import Any, BinaryIO, Final

import psutil

from heptagram_backend.constraint import ConstraintSpec, GrammarFactory
from heptagram_backend.errors import HeptagramError
from heptagram_backend.grammars import load_grammar_factory
from heptagram_backend.trial.setup import OUT_OF_MEMORY, Setup
from heptagram_backend.trial.without_torch import hide_torch

_NICENESS: Final = 5


def main() -> None:
    os.nice(_NICENESS)  # the engine computes beside it
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the server may ignore or block it, which is inherited
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    answers = _private_stdout()
    lines: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    hide_torch()
    setup = Setup.of(lines.get())
    factory = load_grammar_factory(
        setup.token_bytes,
        vocab_width=setup.vocab_width,
        stop_token_ids=setup.stop_token_ids,
        cache_limit_bytes=setup.cache,
    )
    _answer(answers, {})
    while True:
        _answer(answers, _tried(factory, ConstraintSpec(**json.loads(lines.get())), setup))


def _tried(factory: GrammarFactory, spec: ConstraintSpec, setup: Setup) -> dict[str, Any]:
    """Compile under the limits. Beyond that of time the signal's default action ends the process, wherever it is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = psutil.Process().memory_info().vms + setup.memory
    resource.setrlimit(resource.RLIMIT_AS, (most if soft == resource.RLIM_INFINITY else min(most, soft), hard))
    signal.setitimer(signal.ITIMER_PROF, setup.seconds)
    try:
        factory.compile(spec)
    except HeptagramError as error:
        if "bad_alloc" in str(error):
            os._exit(OUT_OF_MEMORY)
        return {"code": error.wire.code, "message": error.wire.message, "param": error.wire.param}
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    finally:
        factory.forget()  # so that each one has the same memory, and none is cheaper for the one before
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return {}


def _private_stdout() -> BinaryIO:
    """The way back to the parent; what a library prints goes to stderr instead."""
    mine = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return os.fdopen(mine, "wb")


def _answer(answers: BinaryIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


def _read(lines: SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
