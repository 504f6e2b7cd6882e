"""What holds for every test."""

from __future__ import annotations

import pytest

from tests.children import give_children_default_signals


@pytest.fixture(scope="session", autouse=True)
def _children_hear_signals() -> None:
    give_children_default_signals()
