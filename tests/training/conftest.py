from __future__ import annotations

from pathlib import Path

import pytest

from heptagram_backend.training.drafter_data import Answer
from tests.engine.harness import tiny_checkpoint
from tests.training.drafter_bench import answered


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny target's checkpoint."""
    return tiny_checkpoint(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="session")
def answers_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("answers")


@pytest.fixture(scope="session")
def answers(tiny: Path, answers_folder: Path) -> list[Answer]:
    """What it says to 48 prompts."""
    return answered(tiny, answers_folder, 48)
