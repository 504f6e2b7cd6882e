"""What holds for every test."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from tests.children import give_children_default_signals

# Before torch: the tests' tensors are small, and what else runs here, a server above all, needs the other cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Hypothesis' usual deadline is a time of this machine, which a test must not depend on.
settings.register_profile("heptagram", deadline=None)
settings.load_profile("heptagram")


@pytest.fixture(scope="session", autouse=True)
def _children_hear_signals() -> None:
    give_children_default_signals()
