"""``heptagram repo``: init, add, status, canary, shift, promote, rollback, drain, gc, verify.

With ``--dry-run`` each says what it would do, and does none of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from heptagram_backend.cache import locked
from heptagram_backend.checkpoint import resolve
from heptagram_backend.errors import HeptagramError, RolloutError
from heptagram_backend.recorded import check_recorded, check_versions
from heptagram_backend.release import Release
from heptagram_backend.rollout.arguments import parse_arguments
from heptagram_backend.rollout.canary import BUILT_IN, Case, check_version, read_suite
from heptagram_backend.rollout.files import RolloutFiles
from heptagram_backend.rollout.making import make_repository
from heptagram_backend.rollout.memory import check_fits, model_bytes, processes_bytes
from heptagram_backend.rollout.rollout import Rollout
from heptagram_backend.rollout.server import requests_of, states_of
from heptagram_backend.rollout.status import as_table, status_of
from heptagram_backend.rollout.steps import Step, run_all
from heptagram_backend.server.checks import check_path
from heptagram_backend.server.control import ModelControl
from heptagram_backend.server.control_key import read_key
from heptagram_backend.server.model import changed_values, values_for
from heptagram_backend.server.process import Address
from heptagram_backend.server.repository import Overrides, releases_of

EXIT_OK, EXIT_FAILED = 0, 1
T = TypeVar("T")
# What a version must not take over from one of another checkpoint.
_OF_ANOTHER_MODEL: Mapping[str, Any] = dict.fromkeys(("adapter", "adapter_hash", "drafter_hash"))


def command(argv: list[str]) -> int:
    """Run ``heptagram repo``; returns the exit code."""
    values = parse_arguments(argv)
    try:
        outcome = {**_COMMANDS[values.command](values), **({"dry_run": True} if values.dry_run else {})}
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
    check_path("the model repository", target)
    overrides = _overrides(values)
    report = _reporter(values)
    if target.exists():
        if not (releases_of(target) and RolloutFiles(target).is_made_of(1, overrides, 1)):
            raise RolloutError(f"{target} exists; `heptagram repo add` puts a version into a repository")
        report(f"{target} is this already")
    else:
        _run(values, [Step(f"write {target}", lambda: make_repository(target, overrides))])
        report(f"heptagram serve --model-repository {target}")
    return {"repository": str(target)}


def _add(values: argparse.Namespace) -> Mapping[str, Any]:
    def add(rollout: Rollout) -> int:
        rollout.recover(but="add")
        base = values.base or rollout.current()
        return rollout.add(_overrides(values, rollout.release(base)), base=base)

    version = _with_rollout(values, add)
    if not values.dry_run:
        _reporter(values)(f"version {version} is loaded; next: heptagram repo canary {version}, promote {version}")
    return {"version": version}


def _status(values: argparse.Namespace) -> Mapping[str, Any]:
    told = status_of(RolloutFiles(values.model_repository), states_of(_control(values)), requests_of(_address(values)))
    if not values.json:
        sys.stdout.write(as_table(told))
    return asdict(told)


def _canary(values: argparse.Namespace) -> Mapping[str, Any]:
    version, cases = values.version, _cases(values)
    asked = f"ask version {version} {', '.join(case.name for case in cases)}"
    _run(values, [Step(asked, lambda: check_version(_address(values), version, cases))])
    return {"version": version}


def _shift(values: argparse.Namespace) -> Mapping[str, Any]:
    def shift(rollout: Rollout) -> Mapping[int, int]:
        rollout.shift(values.version, values.weight)
        return rollout.shares()

    return {"traffic": _with_rollout(values, shift)}


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


def _verify(values: argparse.Namespace) -> Mapping[str, Any]:
    """Reads every byte; a load compares samples."""
    release = RolloutFiles(values.model_repository).release(values.version)
    warnings = [f"not recorded: {name}" for name in release.unrecorded]

    def verify() -> None:
        check_recorded(release, resolve(release.checkpoint, release.adapter), whole=True)
        warnings.extend(check_versions(release.versions or {}))

    _run(values, [Step(f"read all of {release.checkpoint}", verify)])
    for warning in warnings:
        _reporter(values)(warning)
    return {"version": values.version, "warnings": warnings}


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], Mapping[str, Any]]] = {
    "init": _init,
    "add": _add,
    "status": _status,
    "canary": _canary,
    "shift": _shift,
    "promote": _promote,
    "rollback": _rollback,
    "drain": _drain,
    "gc": _gc,
    "verify": _verify,
}


def _run(values: argparse.Namespace, steps: Sequence[Step]) -> None:
    if values.dry_run:
        steps = [Step(step.text, lambda: None) for step in steps]
    run_all(steps, _reporter(values))


def _with_rollout(values: argparse.Namespace, work: Callable[[Rollout], T]) -> T:
    files, address = RolloutFiles(values.model_repository), _address(values)
    check_path("the model repository", files.root)

    def fits(version: int) -> None:
        release, folder = files.release(version), checkpoint_of(version)
        check_path("the checkpoint", folder)
        models = {each: model_bytes(files.release(each), checkpoint_of(each)) for each in files.served()}
        check_fits(release, folder, processes=processes_bytes(files.root, models))

    def checkpoint_of(version: int) -> Path:
        release = files.release(version)
        return resolve(release.checkpoint, release.adapter)

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


def _overrides(values: argparse.Namespace, base: Release | None = None) -> Overrides:
    """What is asked for, and what follows from it, for a version made of ``base``."""
    names = ("served_model_name", "format", "adapter")
    named = {name: given for name in names if (given := getattr(values, name))}
    given = Overrides(release={**values.release, **named}, engine=values.engine)
    if values.model is None and base is not None:
        return changed_values(given, base.checkpoint, base.adapter)
    folder = resolve(values.model, given.adapter)
    check_path("the checkpoint", folder)
    made = values_for(values.model, folder, given)
    return made if base is None else Overrides({**_OF_ANOTHER_MODEL, **made.release}, {"drafter": None, **made.engine})


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
