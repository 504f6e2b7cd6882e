"""The schemas that are compared: public reports, real tool sets, BFCL v4, and the JSON-Schema-Test-Suite."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.conformance import bfcl
from tests.conformance.cases import PROMPTS, toolset

DATA: Final = Path(__file__).resolve().parents[1] / "data"
SUITE: Final = "json-schema-test-suite/tests/draft2020-12"
# Files of BFCL for Java and JavaScript write types in the words of these languages.
_FOREIGN: Final[Mapping[str, str]] = {
    "String": "string",
    "char": "string",
    "Boolean": "boolean",
    "long": "integer",
    "double": "float",
    "Array": "array",
    "ArrayList": "array",
    "HashMap": "dict",
    "": "any",
}


@dataclass(frozen=True, slots=True)
class Instance:
    """``valid`` is what the source says; ``None`` where it says nothing."""

    value: Any
    valid: bool | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A schema and what its source tries on it. ``parameters``: it is what a tool declares."""

    source: str
    name: str
    schema: Any
    parameters: bool
    instances: tuple[Instance, ...] = ()


def reports() -> Iterator[Group]:
    """What people hit elsewhere and reported in public; instances are our own."""
    for report in json.loads((DATA / "cases" / "schemas.json").read_text(encoding="utf-8")):
        tried = [Instance(value, verdict == "valid") for verdict in ("valid", "invalid") for value in report[verdict]]
        yield Group("public reports", report["issue"], report["schema"], parameters=True, instances=tuple(tried))


def toolsets() -> Iterator[Group]:
    for name in PROMPTS:
        for tool in toolset(name):
            function = tool["function"]
            yield Group("tool sets", f"{name} {function['name']}", function["parameters"], parameters=True)


def of_bfcl() -> Iterator[Group]:
    """Each different parameter schema once; nothing where the wheel is not installed."""
    seen: set[str] = set()
    for name, function in _bfcl_functions():
        schema = bfcl.to_json_schema(_in_words_of_python(function["parameters"]))
        if (key := json.dumps(schema, sort_keys=True)) not in seen:
            seen.add(key)
            yield Group("BFCL v4", f"{name} {function['name']}", schema, parameters=True)


def suite() -> Iterator[Group]:
    """Draft 2020-12 of the suite; nothing where ``HEPTAGRAM_TEST_DATA`` does not name the folder that holds it."""
    if "HEPTAGRAM_TEST_DATA" not in os.environ:
        return
    folder = Path(os.environ["HEPTAGRAM_TEST_DATA"]) / SUITE
    for path in sorted(folder.rglob("*.json")):
        # Only the files under `optional/format` take `format` for an assertion, as we do.
        asserts = "format" not in path.name or path.parent.name == "format"
        for group in json.loads(path.read_text(encoding="utf-8")):
            tried = [Instance(test["data"], test["valid"] if asserts else None) for test in group["tests"]]
            name = f"{path.relative_to(folder)}: {group['description']}"
            yield Group("JSON-Schema-Test-Suite", name, group["schema"], parameters=False, instances=tuple(tried))


def _bfcl_functions() -> Iterator[tuple[str, Mapping[str, Any]]]:
    folder = bfcl.data_folder()
    files = [] if folder is None else [*folder.glob("BFCL_v4_*.json"), *folder.glob("multi_turn_func_doc/*.json")]
    for path in sorted(files):
        text = path.read_text(encoding="utf-8")
        for line in text.splitlines() if text.startswith('{"') else ():  # one file is an index, not a list of lines
            record = json.loads(line)
            for function in record.get("function", []) if "question" in record else [record]:
                if "parameters" in function:
                    yield path.stem, function


def _in_words_of_python(node: Mapping[str, Any]) -> dict[str, Any]:
    told = {**node, "type": _FOREIGN.get(node["type"], node["type"])}
    if "properties" in node:
        told["properties"] = {name: _in_words_of_python(child) for name, child in node["properties"].items()}
    if "items" in node:
        told["items"] = _in_words_of_python(node["items"])
    return told
