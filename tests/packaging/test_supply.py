"""The lock file agrees with what the project asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[2]
# One entry: `name==version \` and, indented below it, its hashes.
ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?: \\\n +--hash=sha256:[0-9a-f]{64})+)\n", re.MULTILINE)
LOCK = (PROJECT / "requirements-lock.txt").read_text()
LOCKED = {canonicalize_name(name): version for name, version, _ in ENTRY.findall(LOCK)}


def asked() -> list[Requirement]:
    """What the extras that serve ask for directly, and the shipped models."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = list(project["dependencies"]) + (PROJECT / "requirements-shipped.txt").read_text().splitlines()
    for extra in ("demo", "tracing", "backend", "gateway", "quantized"):
        lines += extras[extra]
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return [each for each in found if each.name != "heptagram"]


@pytest.mark.parametrize("requirement", asked(), ids=str)
def test_every_requirement_is_locked_at_a_version_that_satisfies_it(requirement: Requirement) -> None:
    assert requirement.specifier.contains(LOCKED[canonicalize_name(requirement.name)], prereleases=True)


def test_every_line_of_the_lock_belongs_to_an_entry_with_hashes() -> None:
    rest = [line for line in ENTRY.sub("", LOCK).splitlines() if line and not line.lstrip().startswith("#")]
    assert rest == []


def test_the_lock_names_no_source_of_packages() -> None:
    assert "://" not in LOCK
    assert "--index-url" not in LOCK
    assert "--find-links" not in LOCK
