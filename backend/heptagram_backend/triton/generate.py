"""Second step of the ensembles: the engine behind a decoupled model. It can also be called directly."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import triton_python_backend_utils as pb_utils

from heptagram_backend.checkpoint import resolve
from heptagram_backend.engine_api import Engine
from heptagram_backend.engines import load_engine
from heptagram_backend.errors import ReleaseError
from heptagram_backend.generation import GenerationRequest
from heptagram_backend.recorded import check_recorded, check_versions
from heptagram_backend.release import Release
from heptagram_backend.triton.account import Origin, accounted
from heptagram_backend.triton.cancel import CancelInbox
from heptagram_backend.triton.live import LiveRequests
from heptagram_backend.triton.metrics import EngineMetrics, Rejections
from heptagram_backend.triton.render import renderer_of
from heptagram_backend.triton.sink import ResponseSink
from heptagram_backend.triton.status import contained, triton_error
from heptagram_backend.triton.tensors import read_flag, read_token_ids, require_text, text_tensor
from heptagram_backend.triton.version import begin_telemetry, load_release, refuse_load
from heptagram_backend.triton.watch import Watcher
from heptagram_telemetry.logs import request_id as named
from heptagram_wire import tensors as names

_log = logging.getLogger(__name__)
_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_PLAN_ADVICE: Final = "send what `preprocess` made of the request, or call `chat` or `completions`"
_STOP_ADVICE: Final = "send the id of the request's `start` event together with `stop`"


class TritonPythonModel:
    """``execute`` returns at once; the engine's threads answer through the response senders."""

    def initialize(self, args: Mapping[str, str]) -> None:
        try:
            self._tracer = begin_telemetry(names.GENERATE)
            self._engine = self.open_engine(load_release(args), args["model_version"])
        except ReleaseError as error:
            raise refuse_load(error) from error
        self._live = LiveRequests()
        self._inbox = CancelInbox()
        self._metrics = EngineMetrics(model=args["model_name"], version=args["model_version"])
        self._rejections = Rejections(model=args["model_name"], version=args["model_version"])
        self._watcher = Watcher(engine=self._engine, live=self._live, inbox=self._inbox, metrics=self._metrics)
        self._watcher.start()

    def open_engine(self, release: Release, version: str) -> Engine:
        """The seam where tests put an engine of their own."""
        checkpoint = resolve(release.checkpoint, release.adapter)
        check_recorded(release, checkpoint)
        for warning in check_versions(release.versions or {}):
            pb_utils.Logger.log_warn(warning)
        if release.unrecorded:
            pb_utils.Logger.log_info(f"not recorded, so not compared: {', '.join(release.unrecorded)}")
        return load_engine(release, checkpoint, version)

    def execute(self, requests: Sequence[Any]) -> None:
        for request in requests:
            named.set(request.request_id())
            sender = request.get_response_sender()
            try:
                if not read_flag(request, names.STOP):
                    self._submit(request, sender)
                    continue
                response = self._stop(request)
            except Exception as error:  # must be answered here: raised, it would end the whole execute call
                fault = contained(error, where="generate")
                self._rejections.count(fault.wire.code)
                _log.info("refused", extra={"fields": {"error": fault.wire.code}})
                response = pb_utils.InferenceResponse(error=triton_error(fault))
            sender.send(response, flags=_FINAL)

    def finalize(self) -> None:
        self._engine.close()  # 1. every live request ends and is answered; cancels still work meanwhile
        self._watcher.close()  # 2. nobody is left to watch
        self._inbox.close()  # 3. nobody reads tickets any more
        self._live.check()  # 4. every request was closed
        self._metrics.close()  # 5. the numbers of this version disappear
        self._rejections.close()
        self._tracer.close()  # 6. the last spans are exported

    def _submit(self, request: Any, sender: Any) -> None:
        plan = require_text(request, names.PLAN, advice=_PLAN_ADVICE)
        ids = read_token_ids(request, names.PROMPT_IDS, advice=_PLAN_ADVICE)
        work = replace(GenerationRequest.from_json(plan, ids), request_id=request.request_id() or None)
        ticket = self._inbox.issue()
        key = ticket.ticket
        sink = ResponseSink(
            sender,
            ticket=ticket.to_json(),
            stream=work.stream,
            renderer=renderer_of(work),
            closed=lambda: self._live.close(key),
            request_id=work.request_id,
        )
        self._live.open(key, sink)
        try:
            id = self._engine.submit(work, accounted(sink, work, Origin.of(request, self._tracer), self._tracer))
        except BaseException:
            self._live.close(key)
            raise
        if self._live.bind(key, id):
            self._engine.cancel(id, "client")

    def _stop(self, request: Any) -> Any:
        self._engine.cancel(require_text(request, names.ID, advice=_STOP_ADVICE), "stop")
        return pb_utils.InferenceResponse([text_tensor(names.EVENTS, []), text_tensor(names.TICKET, [""])])
