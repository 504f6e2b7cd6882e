"""A tiny decoupled Python model, so that the launcher is tested without ours."""

from __future__ import annotations

from pathlib import Path

_CONFIG = """
name: "echo"
backend: "python"
max_batch_size: 0
input [ { name: "text", data_type: TYPE_STRING, dims: [1] } ]
output [ { name: "out", data_type: TYPE_STRING, dims: [-1] } ]
model_transaction_policy { decoupled: true }
instance_group [ { kind: KIND_CPU, count: 1 } ]
"""

# It reports where it runs, so that a test can see the stub's interpreter, import path and environment.
_MODEL = """
import json, os, sys
import numpy
import triton_python_backend_utils as pb_utils
import heptagram_wire.events
import heptagram_backend.errors


class TritonPythonModel:
    def initialize(self, args):
        pb_utils.Logger.log_info("heptagram: warming up echo")

    def execute(self, requests):
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "text").as_numpy()[0].decode()
            about = {"text": text, "pid": os.getpid(), "executable": sys.executable}
            about["threads"] = os.environ["OMP_NUM_THREADS"]
            out = pb_utils.Tensor("out", numpy.array([json.dumps(about).encode()], dtype=object))
            sender = request.get_response_sender()
            sender.send(pb_utils.InferenceResponse([out]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None
"""


def write_echo(repository: Path, *, model: str | None = None) -> Path:
    """Write a repository with the model ``echo``, whose ``model.py`` is ``model``; returns ``repository``."""
    version = repository / "echo" / "1"
    version.mkdir(parents=True)
    (repository / "echo" / "config.pbtxt").write_text(_CONFIG)
    (version / "model.py").write_text(_MODEL if model is None else model)
    return repository
