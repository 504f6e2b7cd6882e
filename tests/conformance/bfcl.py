"""BFCL v4 prompts and tools from the wheel ``bfcl-eval``: read as data, its code is never imported.

Only evaluation files are read. The corpus writes types in Python's words; :func:`to_json_schema` maps them.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

REQUIREMENT: Final = "bfcl-eval==2026.3.23"
CATEGORIES: Final = ("simple_python", "multiple", "parallel", "parallel_multiple")
SEED: Final = 20260323

_TYPES: Final[Mapping[str, str | None]] = {
    "dict": "object",
    "float": "number",
    "tuple": "array",
    "any": None,
    **{name: name for name in ("string", "integer", "boolean", "array")},
}
# Annotations and assertions that mean the same in JSON Schema. ``optional``, which does not, is left out.
_KEPT: Final = ("description", "default", "enum", "format", "maximum", "required")
_ILLEGAL_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")

Tool = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt with its tools in OpenAI's form. ``category`` is one of :data:`CATEGORIES`."""

    id: str
    category: str
    text: str
    tools: tuple[Tool, ...]


def data_folder() -> Path | None:
    """The data folder of the installed wheel, ``None`` where it is not installed."""
    spec = find_spec("bfcl_eval")
    places = (spec.submodule_search_locations or []) if spec else []
    return next((folder for place in places if (folder := Path(place) / "data").is_dir()), None)


def sample(count: int) -> list[Prompt]:
    """The same ``count`` prompts in every run: equal shares of the categories, in turn.

    Raises:
        FileNotFoundError: the wheel is not installed; the message says how.
    """
    folder = data_folder()
    if folder is None:
        raise FileNotFoundError(f"BFCL v4 is not installed; pip install --no-deps {REQUIREMENT}")
    chooser = random.Random(SEED)
    share = -(-count // len(CATEGORIES))
    shares = [chooser.sample(list(_read(folder, category)), share) for category in CATEGORIES]
    return [prompt for group in zip(*shares, strict=True) for prompt in group][:count]


def _read(folder: Path, category: str) -> Iterator[Prompt]:
    with (folder / f"BFCL_v4_{category}.json").open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            (message,) = record["question"][0]
            yield Prompt(record["id"], category, message["content"], to_tools(record["function"]))


def to_tools(functions: Sequence[Mapping[str, Any]]) -> tuple[Tool, ...]:
    """BFCL functions as OpenAI tools; a character that a tool name cannot hold becomes ``_``."""
    return tuple(
        {
            "type": "function",
            "function": {
                "name": _ILLEGAL_IN_NAME.sub("_", function["name"]),
                "description": function["description"],
                "parameters": to_json_schema(function["parameters"]),
            },
        }
        for function in functions
    )


def to_json_schema(node: Mapping[str, Any]) -> dict[str, Any]:
    """A BFCL parameter node as JSON Schema.

    >>> to_json_schema({"type": "tuple", "items": {"type": "float"}, "optional": True})
    {'type': 'array', 'items': {'type': 'number'}}
    """
    schema: dict[str, Any] = {}
    if (kind := _TYPES[node["type"]]) is not None:
        schema["type"] = kind
    schema |= {key: node[key] for key in _KEPT if key in node}
    if "properties" in node:
        schema["properties"] = {name: to_json_schema(child) for name, child in node["properties"].items()}
    if "items" in node:
        schema["items"] = to_json_schema(node["items"])
    return schema
