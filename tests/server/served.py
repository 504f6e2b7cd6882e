"""A running server as the tests see it: over raw HTTP, raw gRPC, its metrics and its repository index."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
import tritonclient.grpc as triton
from prometheus_client.parser import text_string_to_metric_families

from heptagram_backend.server.control_key import HEADER, find_key
from heptagram_backend.server.process import ServerProcess
from heptagram_wire import tensors as names
from heptagram_wire.codec import decode_event
from heptagram_wire.events import Event
from tests.children import child
from tests.server.repository import ROOT

AT_REST = ("num_requests_running", "num_requests_waiting", "slots_used", "live_matchers")
_OF_THE_MODEL = {"model", "version", "pid"}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    text: str

    @property
    def error(self) -> str:
        return str(json.loads(self.text.removeprefix("data: "))["error"])

    @property
    def messages(self) -> list[Any]:
        """The objects of a server-sent event stream."""
        return [json.loads(line.removeprefix("data: ")) for line in self.text.splitlines() if line]


@dataclass(frozen=True, slots=True)
class Received:
    """One gRPC response: its events, whether it carries FINAL, or Triton's error text."""

    events: tuple[Event, ...] = ()
    final: bool = False
    error: str | None = None


class RawStream:
    """One request on a gRPC stream of its own, without our client. Leaving the block cancels what still runs."""

    def __init__(self, url: str, model: str, inputs: Sequence[Any]) -> None:
        self._queue: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        self._answered = False
        self._client = triton.InferenceServerClient(url)
        # No header `triton_grpc_error`: it would add the status to errors, but tritonserver 2.51 soon dies of it.
        self._client.start_stream(self._deliver)
        self._client.async_stream_infer(model, list(inputs), enable_empty_final_response=True)

    def _deliver(self, result: Any, error: Any) -> None:
        self._queue.put((result, error))

    def next(self, timeout: float = 30.0) -> Received:
        result, error = self._queue.get(timeout=timeout)
        if error is not None:
            self._answered = True
            return Received(error=error.message(), final=True)
        self._answered = result.get_response().parameters["triton_final_response"].bool_param
        array = result.as_numpy(names.EVENTS)
        events = () if array is None else tuple(decode_event(text) for text in array)
        return Received(events, final=self._answered)

    def rest(self) -> list[Received]:
        """Everything up to FINAL or an error."""
        received = [self.next()]
        while not received[-1].final:
            received.append(self.next())
        return received

    def silent(self, seconds: float) -> bool:
        """Whether nothing more arrives."""
        try:
            self._queue.get(timeout=seconds)
        except queue.Empty:
            return True
        return False

    def cancel(self) -> None:
        self._client.stop_stream(cancel_requests=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._answered:
            self._client.stop_stream()  # a cancel just behind FINAL leaks in tritonserver 2.51
        else:
            self.cancel()
        self._client.close()


def text_input(name: str, *values: str | bytes) -> Any:
    data = np.array([value.encode() if isinstance(value, str) else value for value in values], dtype=np.object_)
    tensor = triton.InferInput(name, [len(values)], "BYTES")
    tensor.set_data_from_numpy(data)
    return tensor


def number_input(name: str, values: Any) -> Any:
    kinds = {"int32": "INT32", "bool": "BOOL", "float32": "FP32"}
    array = np.asarray(values)
    tensor = triton.InferInput(name, list(array.shape), kinds[str(array.dtype)])
    tensor.set_data_from_numpy(array)
    return tensor


# What Triton refuses by itself, before any model sees it: a pattern of its text, and the inputs.
MISFITS: dict[str, list[Any]] = {
    "data-type is 'INT32', but model": [number_input(names.REQUEST, np.array([1], dtype=np.int32))],
    r"Expected \[1\], got \[2\]": [text_input(names.REQUEST, "{}", "{}")],
    "expected number of inputs|unexpected inference input": [text_input(names.REQUEST, "{}"), text_input("other", "x")],
}


@dataclass(frozen=True, slots=True)
class Served:
    process: ServerProcess

    @property
    def grpc_url(self) -> str:
        return self.process.address.grpc_url

    def post(self, path: str, body: object) -> Answer:
        """POST ``body`` as JSON (bytes go as they are)."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        address = self.process.address
        key = find_key(address.reachable_host, address.http_port) if path.startswith("repository/") else None
        request = urllib.request.Request(f"http://{address.http_url}/v2/{path}", data, {HEADER: key} if key else {})
        try:
            with urllib.request.urlopen(request, timeout=100) as response:
                return Answer(response.status, response.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read().decode())

    def generate(self, request: str, *, model: str = names.CHAT, stream: bool = False) -> Answer:
        return self.post(f"models/{model}/{'generate_stream' if stream else 'generate'}", {names.REQUEST: request})

    def stream(self, *inputs: Any, model: str = names.CHAT) -> RawStream:
        return RawStream(self.grpc_url, model, inputs)

    def chat(self, request: str) -> RawStream:
        return self.stream(text_input(names.REQUEST, request))

    def metrics(self) -> dict[str, float]:
        """The gauges and counters of ours, without their ``heptagram_``, each summed over its labels."""
        found: dict[str, float] = defaultdict(float)
        for (name, label), value in self.samples().items():
            if not label.startswith("le="):
                found[name] += value
        return found

    def samples(self) -> dict[tuple[str, str], float]:
        """All of ours by name, without ``heptagram_``, and by the label that not all have, as ``code=internal``."""
        with urllib.request.urlopen(self.process.address.metrics_url, timeout=10) as response:
            families = text_string_to_metric_families(response.read().decode())
            found = [sample for family in families for sample in family.samples]
        told: dict[tuple[str, str], float] = defaultdict(float)
        for sample in found:
            own = [f"{name}={value}" for name, value in sample.labels.items() if name not in _OF_THE_MODEL]
            if sample.name.startswith("heptagram_"):
                told[sample.name.removeprefix("heptagram_"), "".join(own)] += sample.value
        return told

    def settle(self, timeout_s: float = 10.0) -> dict[str, float]:
        """Wait until nothing lives in the engine; the numbers then."""
        deadline = time.monotonic() + timeout_s
        while any((numbers := self.metrics())[name] for name in AT_REST):
            assert time.monotonic() < deadline, f"still alive: {numbers}"
            time.sleep(0.02)
        return numbers

    def grown(self, counter: str, before: dict[str, float], by: int, timeout_s: float = 5.0) -> None:
        """Wait until a counter has grown by exactly ``by``; it is published up to 75 ms late."""
        deadline = time.monotonic() + timeout_s
        while (now := self.metrics()[counter]) != before[counter] + by:
            assert time.monotonic() < deadline, f"{counter}: {before[counter]} + {by} expected, but {now}"
            time.sleep(0.02)

    def state(self, model: str) -> str:
        index = json.loads(self.post("repository/index", {}).text)
        return str(next(entry.get("state", "") for entry in index if entry["name"] == model))

    def wait_unloaded(self, model: str, timeout_s: float = 10.0) -> None:
        """Wait until an unload is over; a request that leaked would keep the model UNLOADING for ever."""
        deadline = time.monotonic() + timeout_s
        while (state := self.state(model)) == "UNLOADING":
            assert time.monotonic() < deadline, f"{model} never unloads: a request of it leaked"
            time.sleep(0.02)
        assert state == "UNAVAILABLE"

    def reload(self, model: str = names.CHAT) -> None:
        """Unload and load, which only works when nothing of the model is in flight."""
        self.post(f"repository/models/{model}/unload", {})
        self.wait_unloaded(model)
        assert self.post(f"repository/models/{model}/load", {}).status == 200

    @contextmanager
    def doomed_client(self, request: str, *, responses: int) -> Iterator[subprocess.Popen[str]]:
        """A client in a process of its own that has read so many responses and goes on reading."""
        command = [sys.executable, "-m", "tests.server.reader", self.grpc_url, request]
        with child(command, cwd=ROOT, stderr=None) as process:
            assert process.stdout is not None
            for _ in range(responses):
                assert process.stdout.readline(), "the client ended too early"
            yield process
