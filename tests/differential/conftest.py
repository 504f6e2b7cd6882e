"""Prints what the runs of this folder counted, once, at the end."""

from __future__ import annotations

import pytest

from tests.differential.counts import Counts, merged

_RUNS: pytest.StashKey[list[Counts]] = pytest.StashKey()


@pytest.fixture
def counts(pytestconfig: pytest.Config) -> Counts:
    """What the test counts; it stands in the table even where the test fails."""
    made = Counts()
    pytestconfig.stash.setdefault(_RUNS, []).append(made)
    return made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if runs := config.stash.get(_RUNS, []):
        terminalreporter.section("schemas and grammars beside jsonschema and llguidance")
        terminalreporter.write_line(merged(runs).text())
