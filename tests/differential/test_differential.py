"""Never fail open, and never refuse without a documented reason: many schemas, two forms, two libraries beside ours.

The default run takes a few schemas of each source; ``make test-full`` takes all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

import pytest

from tests.conformance import bfcl
from tests.differential.compare import compare
from tests.differential.corpus import Group, of_bfcl, reports, suite, toolsets
from tests.differential.counts import Counts

Source = Callable[[], Iterator[Group]]
SOURCES: Final[Mapping[str, tuple[Source, int]]] = {
    "public reports": (reports, 3),
    "tool sets": (toolsets, 9),
    "BFCL v4": (of_bfcl, 150),
    "JSON-Schema-Test-Suite": (suite, 15),
}
"""Each with how many groups a sample passes over for one that it takes."""


def _run(name: str, counts: Counts, *, every: int, drawn: int) -> None:
    source, _ = SOURCES[name]
    if name == "BFCL v4" and bfcl.data_folder() is None:
        pytest.skip(f"BFCL v4 is not installed; pip install --no-deps {bfcl.REQUIREMENT}")
    if name == "JSON-Schema-Test-Suite" and "HEPTAGRAM_TEST_DATA" not in os.environ:
        pytest.skip("HEPTAGRAM_TEST_DATA does not name the folder that holds json-schema-test-suite")
    for group in islice(source(), 0, None, every):
        compare(group, counts, drawn=drawn)
    assert sum(counts.walked.values())
    assert sum(count for (_, truth, verdict), count in counts.judged.items() if truth and verdict)
    assert not counts.faults, "\n".join(counts.faults)


@pytest.mark.parametrize("name", SOURCES)
def test_a_sample_of_each_source(name: str, counts: Counts) -> None:
    _run(name, counts, every=SOURCES[name][1], drawn=2)


@pytest.mark.full
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("name", SOURCES)
def test_all_of_each_source(name: str, counts: Counts) -> None:
    _run(name, counts, every=1, drawn=6)
