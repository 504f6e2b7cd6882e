"""What the readers of single keywords ask of the walk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from heptagram_backend.schema.limits import Budget
from heptagram_backend.schema.place import Place

Node = dict[str, Any]


class Nodes(Protocol):
    """What walks the subschemas."""

    budget: Budget

    def node(self, schema: Any, place: Place, depth: int) -> Node:
        """The enforced form of a subschema."""

    def leave(self, place: Place, message: str, left: Mapping[str, Any]) -> None:
        """Leave keywords that the grammar cannot hold to the check of the finished value, or raise."""
