"""BFCL v4's prompts, tools and accepted answers from the wheel ``bfcl-eval``: read as data, its code is never imported.

**The split**: :data:`TRAINING` are the only files that may be learnt from, :data:`EVALUATION` the only ones that are
asked to see what was learnt. The corpus writes types in Python's words; :func:`to_json_schema` maps them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from heptagram_backend.training.example import Call, Example

REQUIREMENT: Final = "bfcl-eval==2026.3.23"
EVALUATION: Final = ("simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance")
TRAINING: Final = (
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "live_irrelevance",
)

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
Accepted = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Record:
    """One prompt. ``accepted`` holds for each wanted call its name and, by parameter, the accepted values; ``""`` among
    them stands for leaving the parameter out. Empty where no call is wanted."""

    id: str
    category: str
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Tool, ...]
    accepted: tuple[tuple[str, Accepted], ...]

    def example(self) -> Example:
        """The record with its first accepted answer; without text where no call is wanted."""
        declared = {tool["function"]["name"]: tool["function"]["parameters"] for tool in self.tools}
        calls = tuple(Call(name, _first(values, declared[name])) for name, values in self.accepted)
        return Example(self.category, {"messages": list(self.messages), "tools": list(self.tools)}, calls=calls)


def data_folder() -> Path | None:
    """The data folder of the installed wheel, ``None`` where it is not installed."""
    spec = find_spec("bfcl_eval")
    places = (spec.submodule_search_locations or []) if spec else []
    return next((folder for place in places if (folder := Path(place) / "data").is_dir()), None)


@cache
def records(category: str) -> Sequence[Record]:
    """All prompts of a file.

    Raises:
        FileNotFoundError: the wheel is not installed; the message says how.
    """
    folder = data_folder()
    if folder is None:
        raise FileNotFoundError(f"BFCL v4 is not installed; pip install --no-deps {REQUIREMENT}")
    answers = {}
    if "irrelevance" not in category:
        answers = {line["id"]: line["ground_truth"] for line in _lines(folder / "possible_answer", category)}
    return [
        Record(
            line["id"],
            category,
            tuple(line["question"][0]),
            to_tools(line["function"]),
            tuple((tool_name(name), values) for call in answers.get(line["id"], ()) for name, values in call.items()),
        )
        for line in _lines(folder, category)
    ]


def training_records() -> list[Record]:
    """All of :data:`TRAINING`, but for a handful of questions that stand in a file of :data:`EVALUATION` too."""
    asked = {_question(record) for category in EVALUATION for record in records(category)}
    return [record for category in TRAINING for record in records(category) if _question(record) not in asked]


def _question(record: Record) -> str:
    return str(record.messages[-1]["content"])


def _lines(folder: Path, category: str) -> Iterator[dict[str, Any]]:
    with (folder / f"BFCL_v4_{category}.json").open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _first(values: Accepted, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The first accepted value of each parameter that may not be left out, in the order of the declaration."""
    chosen = _chosen(values)
    return {name: chosen[name] for name in schema.get("properties", {}) if name in chosen}


def _chosen(value: Any) -> Any:
    """Inside a dict, and inside a list of dicts, there are lists of accepted values again, in most places."""
    if isinstance(value, Mapping):
        lists = {name: found if isinstance(found, list) and found else [found] for name, found in value.items()}
        return {name: _chosen(accepted[0]) for name, accepted in lists.items() if "" not in accepted}
    return [_chosen(item) for item in value] if isinstance(value, list) else value


def tool_name(name: str) -> str:
    """A character that a tool name cannot hold becomes ``_``."""
    return _ILLEGAL_IN_NAME.sub("_", name)


def to_tools(functions: Sequence[Mapping[str, Any]]) -> tuple[Tool, ...]:
    """BFCL functions as OpenAI tools."""
    return tuple(
        {
            "type": "function",
            "function": {
                "name": tool_name(function["name"]),
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
