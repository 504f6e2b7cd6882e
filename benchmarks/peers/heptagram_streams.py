"""Ours, many answers at once: the engine behind Triton's model, called in this process, without prefix cache.

The times hold our preprocessing as well: template, tokens, grammar. Peers get the tokens.

The former engine runs in this file too, so it imports only what both have.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.worker import AskAll, How, Prompt, Stream, Workload, serve_bursts
from heptagram_backend.engines.k7 import build
from heptagram_backend.generation import GenerationRequest
from heptagram_backend.preprocess import Preprocessor
from heptagram_backend.release import EngineOptions, Release
from heptagram_kernels.layout import K7_LAYOUT
from heptagram_wire.events import Event, Failure, TextDelta
from heptagram_wire.requests import encode_request

STREAMS: Final = 16


class _Sink:
    """What one request is told, and when."""

    def __init__(self, asked: float, stop_ids: Sequence[int]) -> None:
        self._asked = asked
        self._stop_ids = stop_ids
        self._pieces: list[str] = []
        self._times: list[float] = []
        self._done = threading.Event()
        self._error: Exception | None = None

    def send(self, events: Sequence[Event], *, final: bool) -> None:
        now = time.perf_counter() - self._asked
        for event in events:
            if isinstance(event, Failure):
                self._error = RuntimeError(event.message)
            elif isinstance(event, TextDelta):
                self._pieces.append(event.text)
                ids = event.token_ids or ()
                self._times += [now] * sum(token not in self._stop_ids for token in ids)
        if final:
            self._done.set()

    def fail(self, error: Exception) -> None:
        self._error = error
        self._done.set()

    def wait(self) -> Stream:
        self._done.wait()
        if self._error is not None:
            raise self._error
        return Stream("".join(self._pieces), self._times)


def load(workload: Workload, threads: int) -> AskAll:
    names = EngineOptions.__dataclass_fields__
    paged: dict[str, Any] = {"enable_prefix_caching": False} if "enable_prefix_caching" in names else {}
    options = EngineOptions(
        threads=threads,
        max_model_len=2048,
        max_num_seqs=STREAMS,
        max_num_batched_tokens=8 * STREAMS + 64,
        **paged,
    )
    folder = Path(workload.checkpoint)
    release = Release("bench", str(folder), "chatml_json", k7_layout=K7_LAYOUT.describe(), engine=options)
    engine, preprocessor = build(release, folder, "1"), Preprocessor(release, folder)

    def request(prompt: Prompt, how: How) -> GenerationRequest:
        body = {key: value for key, value in prompt.request.items() if how.constrained or key != "response_format"}
        ready = preprocessor.prepare(encode_request(body))
        return replace(ready, prompt_ids=tuple(prompt.ids), return_token_ids=True, num_speculative_tokens=how.drafts)

    def ask(prompts: Sequence[Prompt], how: How) -> Sequence[Stream]:
        asked = time.perf_counter()
        sinks = [_Sink(asked, workload.stop_ids) for _ in prompts]
        for prompt, sink in zip(prompts, sinks, strict=True):
            engine.submit(request(prompt, how), sink)
        return [sink.wait() for sink in sinks]

    return ask


if __name__ == "__main__":
    serve_bursts(load)
