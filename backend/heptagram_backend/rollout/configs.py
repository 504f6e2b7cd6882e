"""``config.pbtxt``: which versions of a model are served, which one an ensemble is pinned to, who has what share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from heptagram_backend.errors import RolloutError
from heptagram_wire import traffic

FILE_NAME: Final = "config.pbtxt"


def read_config(model: Path) -> Any:
    """The ``ModelConfig`` of a model's folder.

    Raises:
        RolloutError: missing, or not a model configuration.
    """
    path = model / FILE_NAME
    try:
        return text_format.Parse(path.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())
    except (OSError, text_format.ParseError) as error:
        raise RolloutError(f"{path}: cannot be read ({error})") from error


def write_config(model: Path, config: Any) -> None:
    """Put ``config`` in place at once; the comment at the head of the file that was there stays."""
    path = model / FILE_NAME
    text = _head(path) + text_format.MessageToString(config)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    model.mkdir(exist_ok=True)
    beside = model / f".{FILE_NAME}"
    with open(beside, "w", encoding="utf-8") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    beside.replace(path)


def served_versions(config: Any, there: Iterable[int]) -> list[int]:
    """Which of the versions that are ``there`` Triton loads, ascending."""
    versions = sorted(there)
    match config.version_policy.WhichOneof("policy_choice"):
        case "all":
            return versions
        case "specific":
            return [version for version in versions if version in config.version_policy.specific.versions]
        case _:
            return versions[-(config.version_policy.latest.num_versions or 1) :]


def serve_versions(config: Any, versions: Iterable[int]) -> None:
    """Make Triton load exactly ``versions``."""
    config.version_policy.Clear()
    config.version_policy.specific.versions.extend(sorted(versions))


def pinned_version(config: Any, models: Iterable[str]) -> int | None:
    """The one version that an ensemble's steps of ``models`` are pinned to; None where they differ or are not."""
    pins = {step.model_version for step in config.ensemble_scheduling.step if step.model_name in models}
    return pins.pop() if len(pins) == 1 and min(pins) > 0 else None


def shares(config: Any) -> dict[int, int]:
    """Percents of the requests to an ensemble by version; empty where nothing is shared.

    Raises:
        RolloutError: the parameter is none of ours.
    """
    text = config.parameters[traffic.PARAMETER].string_value if traffic.PARAMETER in config.parameters else ""
    try:
        return traffic.read_traffic(text) if text else {}
    except ValueError as error:
        raise RolloutError(f"{config.name}/{FILE_NAME}: {traffic.PARAMETER}: {error}") from error


def share(config: Any, weights: Mapping[int, int]) -> None:
    """Share requests among versions; with empty ``weights`` the pinned one has them all."""
    if weights:
        config.parameters[traffic.PARAMETER].string_value = traffic.traffic_text(weights)
    elif traffic.PARAMETER in config.parameters:
        del config.parameters[traffic.PARAMETER]


def pin(config: Any, models: Iterable[str], version: int) -> None:
    """Pin an ensemble's steps of ``models``; the ensemble itself gets the same version, and all requests."""
    share(config, {})
    for step in config.ensemble_scheduling.step:
        if step.model_name in models:
            step.model_version = version
    serve_versions(config, [version])


def _head(path: Path) -> str:
    if not path.exists():
        return ""
    head = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if not line.startswith("#"):
            break
        head.append(line)
    return "".join(head)
