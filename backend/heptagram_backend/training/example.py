"""One thing to learn: a chat request and the answer that is wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """``arguments`` in the order of the declared properties."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Example:
    """``request`` is the body of a chat request (``messages`` and ``tools``); the answer is ``text``, then ``calls``.

    ``source`` says where it is from: ``own``, a category of BFCL, or ``chat``. An answer that is not ``whole`` was cut.
    """

    source: str
    request: Mapping[str, Any]
    text: str = ""
    calls: tuple[Call, ...] = ()
    whole: bool = True

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """The declared functions, in OpenAI's form."""
        tools: Sequence[Mapping[str, Any]] = self.request.get("tools", ())
        return tools
