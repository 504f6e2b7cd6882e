"""The worker's side: what to ask comes in on a line of JSON, the answer goes out on one. Standard library only."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

_Asked = TypeVar("_Asked")


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
    stop_ids: Sequence[int] = ()

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Workload:
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(**data | {"prompts": [Prompt(**prompt) for prompt in data["prompts"]]})


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


@dataclass(frozen=True, slots=True)
class Stream:
    """One answer of several at once. ``times`` has for each token, the stop token left out, when it was told, in
    seconds since all were asked; tokens of one step have the same time."""

    text: str
    times: Sequence[float]


@dataclass(frozen=True, slots=True)
class Burst:
    """Prompts asked at the same time, and what became of them. ``cpu_s`` as in :class:`Answer`."""

    streams: Sequence[Stream]
    cpu_s: float

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Burst:
        return cls([Stream(**stream) for stream in data["streams"]], data["cpu_s"])

    @property
    def seconds(self) -> float:
        return max((stream.times[-1] for stream in self.streams if stream.times), default=0.0)

    @property
    def tokens(self) -> int:
        return sum(len(stream.times) for stream in self.streams)


@dataclass(frozen=True, slots=True)
class How:
    """``constrained``: each prompt is held to its schema. ``drafts`` is for ours, the most tokens drafted a step."""

    constrained: bool
    drafts: int = 7


AskAll = Callable[[Sequence[Prompt], How], Sequence[Stream]]
"""Asks all prompts at once."""


def serve(load: Callable[[Workload, int], Ask]) -> None:
    """Run a worker of single prompts: ``python -m MODULE WORKLOAD THREADS``."""

    def reply(ask: Ask, workload: Workload, asked: Any) -> Answer:
        before = time.process_time()
        answer = ask(workload.prompts[asked])
        return replace(answer, cpu_s=time.process_time() - before)

    _serve(load, reply)


def serve_bursts(load: Callable[[Workload, int], AskAll]) -> None:
    """Run a worker that answers many prompts at once: ``python -m MODULE WORKLOAD THREADS``."""

    def reply(ask: AskAll, workload: Workload, asked: Any) -> Burst:
        before = time.process_time()
        streams = ask([workload.prompts[number] for number in asked["numbers"]], How(**asked["how"]))
        return Burst(streams, time.process_time() - before)

    _serve(load, reply)


def _serve(load: Callable[[Workload, int], _Asked], reply: Callable[[_Asked, Workload, Any], Answer | Burst]) -> None:
    # Libraries print what they like: standard output becomes standard error, and the protocol keeps its own copy.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    workload = Workload.read(Path(sys.argv[1]))
    ask = load(workload, int(sys.argv[2]))
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(asdict(reply(ask, workload, json.loads(line)))), file=out, flush=True)
