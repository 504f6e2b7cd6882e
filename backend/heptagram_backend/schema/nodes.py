"""Nodes of the enforced schema, and what the readers of single keywords ask of the walk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from heptagram_backend.schema.limits import Budget
from heptagram_backend.schema.place import Place

Node = dict[str, Any]
NEVER: Final[Node] = {"enum": []}  # nothing satisfies it; removed by `prune`


class Nodes(Protocol):
    """What walks the subschemas."""

    budget: Budget

    def node(self, schema: Any, place: Place, depth: int) -> Node:
        """The enforced form of a subschema."""

    def leave(self, place: Place, message: str, left: Mapping[str, Any]) -> None:
        """Leave keywords that the grammar cannot hold to the check of the finished value, or raise."""

    def never(self, place: Place, reason: str) -> Node:
        """Nothing can stand here, for this reason."""


class Schemas(Nodes, Protocol):
    """What joins schemas before they are walked; all are told with known keywords only."""

    def opened(self, schema: Any, place: Place, depth: int) -> dict[str, Any] | None:
        """A whole subschema without ``$ref`` and ``allOf``; ``None`` when nothing satisfies it."""

    def merged(self, left: Mapping[str, Any], right: Mapping[str, Any], place: Place) -> dict[str, Any] | None:
        """Both as one; ``None`` when nothing satisfies both."""

    def without_unevaluated(self, joined: Mapping[str, Any], place: Place) -> dict[str, Any]:
        """A schema that holds beside others."""


def either(nodes: Iterable[Node]) -> Node:
    """Any of ``nodes``."""
    flat: list[Node] = []
    for node in nodes:
        flat.extend(node["anyOf"] if node.keys() == {"anyOf"} else [node])
    kept = [node for node in flat if node != NEVER]
    return {"anyOf": kept} if len(kept) > 1 else kept[0] if kept else NEVER
