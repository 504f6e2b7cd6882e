"""First step of the ensembles: a request becomes a plan and prompt ids, or an INVALID_ARG error."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

import triton_python_backend_utils as pb_utils

from heptagram_backend.checkpoint import resolve
from heptagram_backend.errors import OverloadedError, ReleaseError, RequestError
from heptagram_backend.generation import GenerationRequest
from heptagram_backend.recorded import check_recorded
from heptagram_backend.release import Release
from heptagram_backend.requests.completions import CompletionInputs
from heptagram_backend.triton.account import Origin
from heptagram_backend.triton.completion_inputs import read_completion
from heptagram_backend.triton.metrics import Rejections
from heptagram_backend.triton.status import contained, triton_error
from heptagram_backend.triton.tensors import read_bytes, require_bytes, text_tensor, token_tensor
from heptagram_backend.triton.version import begin_telemetry, load_release, refuse_load
from heptagram_telemetry.logs import request_id as named
from heptagram_telemetry.tracing import Span
from heptagram_wire import errors as codes
from heptagram_wire import tensors as names

_THREADS: Final = 4
_MAX_PENDING: Final = 256
_log = logging.getLogger(__name__)
_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_ADVICE: Final = (
    "send one JSON object of OpenAI chat-completions fields as STRING [1], or `text_input` to `completions`"
)


class Prepares(Protocol):
    def prepare(self, raw: bytes) -> GenerationRequest:
        """Validate and encode one chat request; raises HeptagramError."""

    def complete(self, inputs: CompletionInputs) -> GenerationRequest:
        """The same for a completion."""


class TritonPythonModel:
    """Works on several requests at once: ``execute`` hands them to threads, which answer through the senders."""

    def initialize(self, args: Mapping[str, str]) -> None:
        try:
            self._tracer = begin_telemetry(names.PREPROCESS)
            self._preprocessor = self.open_preprocessor(load_release(args))
        except ReleaseError as error:
            raise refuse_load(error) from error
        self._rejections = Rejections(model=args["model_name"], version=args["model_version"])
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="heptagram-preprocess")
        self._room = threading.BoundedSemaphore(_MAX_PENDING)

    def open_preprocessor(self, release: Release) -> Prepares:
        """The seam where tests put a preprocessor of their own."""
        from heptagram_backend.preprocess import Preprocessor

        checkpoint = resolve(release.checkpoint, release.adapter)
        check_recorded(release, checkpoint)
        return Preprocessor(release, checkpoint)

    def execute(self, requests: Sequence[Any]) -> None:
        for request in requests:
            self._accept(request)

    def finalize(self) -> None:
        self._pool.shutdown(wait=True)
        self._rejections.close()
        self._tracer.close()

    def _accept(self, request: Any) -> None:
        sender = request.get_response_sender()
        origin = Origin.of(request, self._tracer)
        named.set(origin.request_id)
        span = self._tracer.begin(names.PREPROCESS, origin.traceparent)
        try:
            work = self._read(request)
            if not self._room.acquire(blocking=False):
                raise OverloadedError(f"{_MAX_PENDING} requests wait to be read; try again later")
        except Exception as error:  # must be answered here: raised, it would end the whole execute call
            sender.send(self._refused(error, span), flags=_FINAL)
            return
        self._pool.submit(self._prepare, work, sender, origin, span)

    def _read(self, request: Any) -> Callable[[], GenerationRequest]:
        """Take what came in out of the request's memory; the returned call does the work."""
        completion = read_completion(request)
        if completion is None:
            raw = require_bytes(request, names.REQUEST, advice=_ADVICE)
            return lambda: self._preprocessor.prepare(raw)
        if read_bytes(request, names.REQUEST) is not None:
            raise RequestError(
                "stands beside inputs of a completion; send one or the other",
                code=codes.INVALID_REQUEST,
                param=names.REQUEST,
            )
        return lambda: self._preprocessor.complete(completion)

    def _prepare(self, work: Callable[[], GenerationRequest], sender: Any, origin: Origin, span: Span) -> None:
        named.set(origin.request_id)
        try:
            plan = work()
            response = _plan(plan)
            span.end({"request_id": origin.request_id, "prompt_tokens": len(plan.prompt_ids)})
        except Exception as error:  # a request is always answered, whatever went wrong with it
            response = self._refused(error, span)
        finally:
            self._room.release()
        try:
            sender.send(response, flags=_FINAL)
        except Exception as error:  # the pool would swallow it silently
            _log.error("a plan could not be sent: %s", error)

    def _refused(self, error: Exception, span: Span) -> Any:
        fault = contained(error, where="preprocess")
        self._rejections.count(fault.wire.code)
        span.end({"request_id": named.get()}, error=fault.wire.code)
        _log.info("refused", extra={"fields": {"error": fault.wire.code}})
        return pb_utils.InferenceResponse(error=triton_error(fault))


def _plan(request: GenerationRequest) -> Any:
    return pb_utils.InferenceResponse(
        [token_tensor(names.PROMPT_IDS, request.prompt_ids), text_tensor(names.PLAN, [request.to_json()])]
    )
