"""The numbers that the alert rules and the dashboard ask for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import yaml

MONITORING = Path(__file__).parents[2] / "docker" / "monitoring"


def expressions() -> list[str]:
    """All of PromQL in the rules and the dashboard."""
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())
    dashboard = json.loads((MONITORING / "grafana" / "heptagram.json").read_text())
    asked = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    return asked + [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def selected(expression: str) -> set[str]:
    """Names of the metrics that an expression reads.

    Raises:
        ValueError: it is no PromQL.
    """
    return {node.name for node in _nodes(promql_parser.parse(expression)) if _is_selector(node)}


def _is_selector(node: Any) -> bool:
    return isinstance(node, promql_parser.VectorSelector)


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    children = [getattr(node, name, None) for name in ("lhs", "rhs", "expr", "vector_selector", "vs")]
    for child in [*children, *getattr(node, "args", ())]:
        if child is not None:
            yield from _nodes(child)
