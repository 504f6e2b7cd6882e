"""A fixed sample of BFCL v4's evaluation files, as prompts with their tools."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from heptagram_backend.training.bfcl import REQUIREMENT, Tool, data_folder, records, to_json_schema, to_tools

__all__ = ["CATEGORIES", "REQUIREMENT", "Prompt", "data_folder", "sample", "to_json_schema", "to_tools"]

CATEGORIES: Final = ("simple_python", "multiple", "parallel", "parallel_multiple")
SEED: Final = 20260323


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt with its tools in OpenAI's form. ``category`` is one of :data:`CATEGORIES`."""

    id: str
    category: str
    text: str
    tools: tuple[Tool, ...]


def sample(count: int) -> list[Prompt]:
    """The same ``count`` prompts in every run: equal shares of the categories, in turn.

    Raises:
        FileNotFoundError: the wheel is not installed; the message says how.
    """
    chooser = random.Random(SEED)
    share = -(-count // len(CATEGORIES))
    shares = [chooser.sample(_prompts(category), share) for category in CATEGORIES]
    return [prompt for group in zip(*shares, strict=True) for prompt in group][:count]


def _prompts(category: str) -> list[Prompt]:
    return [Prompt(record.id, category, record.messages[0]["content"], record.tools) for record in records(category)]
