"""``heptagram repo``: init, add, status, canary, promote, rollback, drain, gc."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from heptagram_backend.cache import locked, published
from heptagram_backend.checkpoint import resolve
from heptagram_backend.errors import HeptagramError, RolloutError
from heptagram_backend.rollout.arguments import parse_arguments
from heptagram_backend.rollout.canary import BUILT_IN, Case, check_version, read_suite
from heptagram_backend.rollout.files import RolloutFiles
from heptagram_backend.rollout.memory import check_fits
from heptagram_backend.rollout.rollout import Rollout
from heptagram_backend.rollout.server import in_flight_of, states_of
from heptagram_backend.rollout.status import RepositoryStatus, status_of
from heptagram_backend.server.control import ModelControl
from heptagram_backend.server.control_key import read_key
from heptagram_backend.server.model import values_for
from heptagram_backend.server.process import Address
from heptagram_backend.server.repository import Overrides, project_repository, releases_of, rewrite_release

EXIT_OK, EXIT_FAILED = 0, 1
T = TypeVar("T")


def command(argv: list[str]) -> int:
    """Run ``heptagram repo``; returns the exit code."""
    values = parse_arguments(argv)
    try:
        outcome = _COMMANDS[values.command](values)
    except HeptagramError as error:
        if values.json:
            print(json.dumps({"error": str(error)}))  # noqa: T201
        else:
            sys.stderr.write(f"heptagram repo {values.command}: {error}\n")
        return EXIT_FAILED
    if values.json:
        print(json.dumps(outcome))  # noqa: T201
    return EXIT_OK


def _init(values: argparse.Namespace) -> Mapping[str, Any]:
    target = values.model_repository.absolute()
    overrides = _overrides(values)
    report = _reporter(values)
    with locked(target):
        if target.exists():
            if releases_of(target) and RolloutFiles(target).is_made_of(1, overrides, 1):
                report(f"{target} is this already")
                return {"repository": str(target)}
            raise RolloutError(f"{target} exists; `heptagram repo add` puts a version into a repository")
        report(f"write {target}")
        if not values.dry_run:
            with published(target) as folder:
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(project_repository(), folder, dirs_exist_ok=True, ignore=ignored)
                for path in releases_of(folder):
                    rewrite_release(path.parent, overrides, by="heptagram repo init")
                releases_of(folder)
                files = RolloutFiles(folder)
                files.serve(1, wanted=True)
                files.pin_beside(1)
    report(f"heptagram serve --model-repository {target}")
    return {"repository": str(target)}


def _add(values: argparse.Namespace) -> Mapping[str, Any]:
    version = _with_rollout(values, lambda rollout: rollout.add(_overrides(values), base=values.base))
    _reporter(values)(f"version {version} is loaded; next: heptagram repo canary {version}, promote {version}")
    return {"version": version}


def _status(values: argparse.Namespace) -> Mapping[str, Any]:
    address = _address(values)
    told = status_of(RolloutFiles(values.model_repository), states_of(_control(values)), in_flight_of(address))
    if not values.json:
        sys.stdout.write(_shown(told))
    return asdict(told)


def _canary(values: argparse.Namespace) -> Mapping[str, Any]:
    check_version(_address(values), values.version, _cases(values))
    _reporter(values)(f"version {values.version} is ready and answers as it should")
    return {"version": values.version}


def _promote(values: argparse.Namespace) -> Mapping[str, Any]:
    _with_rollout(values, lambda rollout: rollout.promote(values.version))
    return {"current": values.version}


def _rollback(values: argparse.Namespace) -> Mapping[str, Any]:
    return {"current": _with_rollout(values, lambda rollout: rollout.rollback(values.to))}


def _drain(values: argparse.Namespace) -> Mapping[str, Any]:
    _with_rollout(values, lambda rollout: rollout.drain(values.version))
    return {"drained": values.version}


def _gc(values: argparse.Namespace) -> Mapping[str, Any]:
    def delete_all(rollout: Rollout) -> list[int]:
        rollout.recover()
        old = rollout.deletable()
        for version in old:
            rollout.delete(version)
        return old

    return {"deleted": _with_rollout(values, delete_all)}


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], Mapping[str, Any]]] = {
    "init": _init,
    "add": _add,
    "status": _status,
    "canary": _canary,
    "promote": _promote,
    "rollback": _rollback,
    "drain": _drain,
    "gc": _gc,
}


def _with_rollout(values: argparse.Namespace, work: Callable[[Rollout], T]) -> T:
    files, address = RolloutFiles(values.model_repository), _address(values)

    def fits(version: int) -> None:
        release = files.release(version)
        check_fits(release, resolve(release.checkpoint, release.adapter))

    with locked(files.root):
        return work(
            Rollout(
                files,
                _control(values),
                check=lambda version: check_version(address, version, _cases(values)),
                fits=fits,
                report=_reporter(values),
                dry=values.dry_run,
            )
        )


def _overrides(values: argparse.Namespace) -> Overrides:
    names = ("served_model_name", "format", "adapter")
    named = {name: given for name in names if (given := getattr(values, name))}
    given = Overrides(release={**values.release, **named}, engine=values.engine)
    return values_for(values.model, resolve(values.model, given.adapter), given) if values.model else given


def _cases(values: argparse.Namespace) -> tuple[Case, ...]:
    """What a version must answer; a rollback only asks whether it is ready, as it answered everybody before."""
    if values.command == "rollback":
        return ()
    suite = getattr(values, "suite", None)
    return (*BUILT_IN, *(read_suite(suite) if suite else ()))


def _address(values: argparse.Namespace) -> Address:
    return Address(values.host, grpc_port=0, http_port=values.http_port, metrics_port=values.metrics_port)


def _control(values: argparse.Namespace) -> ModelControl:
    given = values.control_key_file
    return ModelControl(_address(values), key=read_key(given) if given else None)


def _reporter(values: argparse.Namespace) -> Callable[[str], object]:
    """Progress goes to stderr, so that stdout is the outcome."""
    prefix = "would " if values.dry_run else ""
    return lambda text: sys.stderr.write(f"{prefix}{text}\n")


def _shown(status: RepositoryStatus) -> str:
    lines = [f"{'version':<9}{'state':<13}{'in flight':<11}model"]
    for each in status.versions:
        mark = " (current)" if each.current else "" if each.served else " (drained)"
        state = "no server" if each.state is None else each.state
        count = "-" if each.in_flight is None else str(each.in_flight)
        lines.append(f"{each.version:<9}{state:<13}{count:<11}{each.model}{mark}")
    if status.pending:
        lines.append(status.pending)
    return "\n".join(lines) + "\n"
