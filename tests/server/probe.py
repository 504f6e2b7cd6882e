"""A deterministic engine behind the real Triton glue: faults and pauses at exactly the place a test asks for.

It runs inside the real tritonserver, in a repository next to the shipped models. A request is a :class:`Script`, or a
chat request whose last message is the text of one.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace

from heptagram_backend.engine_api import CancelCause, EngineSnapshot, Sink
from heptagram_backend.errors import HeptagramError, OverloadedError, RequestError
from heptagram_backend.generation import CompletionOutput, GenerationRequest, OutputSpec
from heptagram_backend.requests import RequestLimits
from heptagram_backend.requests.completions import CompletionInputs, parse_completion
from heptagram_wire import errors as codes
from heptagram_wire.events import Failure, Finish, FinishReason, Ping, Start, TextDelta, Usage


@dataclass(frozen=True, slots=True)
class Script:
    """What one probe request does: ``wait_ms`` of pings, then ``deltas`` of text, one every ``step_ms``."""

    deltas: int = 3
    step_ms: int = 20
    wait_ms: int = 0
    stream: bool = True
    refuse: str | None = None  # raise at submit: "request", "overloaded", "bug"
    fail_before_start: bool = False
    fail_after: int | None = None  # a failure event after so many deltas
    deadline_ms: int | None = None
    stamp: bool = False  # each delta is the time of its sending, in ns of the machine's monotonic clock

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class ProbePreprocessor:
    def prepare(self, raw: bytes) -> GenerationRequest:
        if raw == b"bug":
            raise ZeroDivisionError("a bug in preprocess")
        try:
            data = json.loads(raw)
            script = Script(**(json.loads(data["messages"][-1]["content"]) if "messages" in data else data))
        except (ValueError, TypeError) as error:
            raise RequestError(str(error), code=codes.INVALID_JSON, param="request") from error
        return GenerationRequest(
            prompt_ids=(1, 2, 3),
            output=OutputSpec("probe"),
            model=script.to_json(),
            max_tokens=max(script.deltas, 1),
            stream=script.stream,
            deadline_ms=script.deadline_ms,
        )

    def complete(self, inputs: CompletionInputs) -> GenerationRequest:
        asked = parse_completion(inputs, RequestLimits())
        output = CompletionOutput(asked.text if asked.echo else "", asked.finish_reason)
        return replace(self.prepare(asked.text.encode()), stream=asked.stream, completion=output)


class ProbeEngine:
    """A thread for each request; ``live_matchers`` counts the threads, so that a leak shows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: dict[str, threading.Event] = {}
        self._threads: list[threading.Thread] = []
        self._counts: Counter[str] = Counter()

    def submit(self, request: GenerationRequest, sink: Sink) -> str:
        script = Script(**json.loads(request.model))
        if script.refuse == "request":
            raise RequestError("never fits", code=codes.CONTEXT_LENGTH, param="messages")
        if script.refuse == "overloaded":
            raise OverloadedError("the queue is full")
        if script.refuse == "bug":
            raise ZeroDivisionError("a bug in submit")
        id = secrets.token_hex(8)
        stop = threading.Event()
        thread = threading.Thread(target=self._play, args=(id, script, sink, stop), daemon=True)
        with self._lock:
            self._stops[id] = stop
            self._threads = [*(each for each in self._threads if each.is_alive() or each.ident is None), thread]
        thread.start()
        return id

    def cancel(self, id: str, cause: CancelCause = "stop") -> bool:
        stop = self._stops.get(id)
        if stop is None:
            return False
        stop.set()
        return True

    def snapshot(self) -> EngineSnapshot:
        with self._lock:
            live = len(self._stops)
        counts = self._counts
        return EngineSnapshot(
            running=live,
            waiting=0,
            slots_used=live,
            slots_total=64,
            live_matchers=live,
            finished={"stop": counts["finished"]},
            failed={codes.INTERNAL: counts["failed"]},
            cancelled={"client": counts["cancelled"]},
            invalid_outputs=0,
            prompt_tokens=0,
            generated_tokens=counts["tokens"],
            draft_tokens=0,
            accepted_draft_tokens=0,
            steps=counts["tokens"],
        )

    def close(self) -> None:
        for thread in self._threads:
            thread.join()

    def _play(self, id: str, script: Script, sink: Sink, stop: threading.Event) -> None:
        if script.fail_before_start:
            self._over(id, "failed")
            sink.fail(HeptagramError("before start", code=codes.INTERNAL))
            return
        sink.send([Start(id, "probe", "1", 3, script.deltas)], final=False)
        began = time.monotonic()
        reason: FinishReason = "stop"
        done = 0
        while not stop.wait((script.step_ms if done or not script.wait_ms else 20) / 1000):
            waited_ms = (time.monotonic() - began) * 1000
            if script.deadline_ms is not None and waited_ms >= script.deadline_ms:
                reason = "deadline"
                break
            if waited_ms < script.wait_ms:
                sink.send([Ping()], final=False)
                continue
            if done == script.fail_after:
                self._over(id, "failed")
                sink.send([Failure(codes.INTERNAL, "as the script says")], final=True)
                return
            if done == script.deltas:
                break
            sink.send([TextDelta(f"{time.monotonic_ns() if script.stamp else done} ")], final=False)
            done += 1
        if stop.is_set():
            reason = "cancelled"
        self._over(id, "cancelled" if reason == "cancelled" else "finished", tokens=done)
        sink.send([Finish(reason, Usage(3, done))], final=True)

    def _over(self, id: str, outcome: str, *, tokens: int = 0) -> None:
        with self._lock:
            del self._stops[id]
            self._counts[outcome] += 1
            self._counts["tokens"] += tokens
