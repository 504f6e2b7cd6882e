"""The worker's side of the protocol: a prompt's number comes in on a line, an answer goes out on one. Stdlib only."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Prompt:
    """``ids`` are the tokens of the whole prompt, template and all; the answer must validate against ``schema``."""

    ids: Sequence[int]
    schema: Mapping[str, Any]
    request: Mapping[str, Any]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Workload:
    checkpoint: str  # a folder in Hugging Face layout
    gguf: str  # the file that it was converted from
    prompts: Sequence[Prompt]

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Workload:
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(data["checkpoint"], data["gguf"], [Prompt(**prompt) for prompt in data["prompts"]])


@dataclass(frozen=True, slots=True)
class Answer:
    """``seconds`` from the prompt's tokens to the last token; ``decode_s`` is the part behind the prompt, if known.

    ``cpu_s`` is what the worker's process computed meanwhile: what other processes do does not lengthen it.
    """

    text: str
    tokens: int
    seconds: float
    decode_s: float | None = None
    cpu_s: float = 0.0


Ask = Callable[[Prompt], Answer]


def serve(load: Callable[[Workload, int], Ask]) -> None:
    """Run a worker: ``python -m MODULE WORKLOAD THREADS``."""
    # Libraries print what they like: standard output becomes standard error, and the protocol keeps its own copy.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    workload = Workload.read(Path(sys.argv[1]))
    ask = load(workload, int(sys.argv[2]))
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        before = time.process_time()
        answer = ask(workload.prompts[int(line)])
        answer = replace(answer, cpu_s=time.process_time() - before)
        print(json.dumps(asdict(answer)), file=out, flush=True)
