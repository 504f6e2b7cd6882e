"""What a repository holds and what its server makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heptagram_backend.rollout.files import PAIR, RolloutFiles
from heptagram_backend.rollout.journal import Journal
from heptagram_backend.rollout.rollout import explain
from heptagram_backend.rollout.server import Requests
from heptagram_wire.traffic import WHOLE

# What Triton's index says of a version, worst first: a pair is as good as its worse half.
_STATES = ("UNAVAILABLE", "LOADING", "UNLOADING", "READY")


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """``served``: the files say so, and how many percent of the conversations the front sends here (``weight``).

    ``state`` is Triton's; ``in_flight`` are its requests, ``ended`` those since it was loaded. None where Triton does
    not answer.
    """

    version: int
    model: str
    checkpoint: str
    current: bool
    served: bool
    weight: int
    state: str | None
    in_flight: int | None
    ended: int | None


@dataclass(frozen=True, slots=True)
class RepositoryStatus:
    """``previous`` is where a rollback goes, ``pending`` explains a command that was cut short."""

    current: int | None
    previous: int | None
    pending: str | None
    versions: tuple[VersionStatus, ...]


def status_of(
    files: RolloutFiles,
    states: Mapping[tuple[str, str], str] | None,
    requests: Requests | None,
) -> RepositoryStatus:
    """Put files, journal and the server's answers together; None stands for a server that does not answer."""
    journal = Journal.read(files.root)
    current, served = files.current(), files.served()
    weights = files.shares() or ({} if current is None else {current: WHOLE})
    return RepositoryStatus(
        current=current,
        previous=journal.rollback_target,
        pending=explain(journal.pending) if journal.pending else None,
        versions=tuple(
            VersionStatus(
                version=version,
                model=(release := files.release(version)).served_model_name,
                checkpoint=release.checkpoint,
                current=version == current,
                served=version in served,
                weight=weights.get(version, 0),
                state=None if states is None else _worse(states, version),
                in_flight=None if requests is None else requests.in_flight.get(version, 0),
                ended=None if requests is None else requests.ended.get(version, 0),
            )
            for version in files.versions()
        ),
    )


def as_table(status: RepositoryStatus) -> str:
    """One line a version, and what is pending."""
    lines = [f"{'version':<9}{'state':<13}{'traffic':<9}{'in flight':<11}{'ended':<9}model"]
    for each in status.versions:
        mark = " (current)" if each.current else "" if each.served else " (drained)"
        state = "no server" if each.state is None else each.state
        counts = f"{_shown(each.in_flight):<11}{_shown(each.ended):<9}"
        lines.append(f"{each.version:<9}{state:<13}{f'{each.weight} %':<9}{counts}{each.model}{mark}")
    if status.pending:
        lines.append(status.pending)
    return "\n".join(lines) + "\n"


def _shown(count: int | None) -> str:
    return "-" if count is None else str(count)


def _worse(states: Mapping[tuple[str, str], str], version: int) -> str:
    return min((states.get((model, str(version)), _STATES[0]) for model in PAIR), key=_STATES.index)
