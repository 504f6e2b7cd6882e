"""Which version folder a model instance was loaded from, and its release."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import triton_python_backend_utils as pb_utils

from heptagram_backend.errors import ReleaseError
from heptagram_backend.release import FILE_NAME, Release
from heptagram_telemetry.logs import configure
from heptagram_telemetry.settings import Telemetry, TelemetryError
from heptagram_telemetry.tracing import Tracer, open_tracer


def load_release(args: Mapping[str, str]) -> Release:
    """Read the release that the config parameter ``release`` points to, in the version folder being loaded.

    Args:
        args: what Triton passes to ``initialize``.

    Raises:
        ReleaseError: the parameter or the file is missing or wrong.
    """
    parameters = json.loads(args["model_config"]).get("parameters", {})
    name = parameters.get("release", {}).get("string_value")
    if name != FILE_NAME:
        raise ReleaseError(f"config.pbtxt: parameter `release` must be `{FILE_NAME}`, not {name!r}")
    return Release.load(Path(args["model_repository"]) / args["model_version"])


def begin_telemetry(model: str) -> Tracer:
    """Log and trace as the server's environment says.

    Raises:
        ReleaseError: it says something that cannot be done.
    """
    try:
        telemetry = Telemetry.from_environment()
        configure(telemetry)
        return open_tracer(telemetry, f"heptagram-{model}")
    except TelemetryError as error:
        raise ReleaseError(str(error)) from error


def refuse_load(error: ReleaseError) -> Exception:
    """The exception that makes Triton refuse this version; other versions go on serving."""
    refusal: Exception = pb_utils.TritonModelException(str(error))
    return refusal
