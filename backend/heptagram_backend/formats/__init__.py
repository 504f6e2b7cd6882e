"""Model families by name. Each is one class, loaded when a release asks for it."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from heptagram_backend.errors import ReleaseError
from heptagram_backend.formats.base import Format

FORMATS: dict[str, str] = {
    "chatml_json": "heptagram_backend.formats.chatml_json:ChatMLJson",
}


def load_format(name: str) -> Format:
    """Make the format ``name``.

    Raises:
        ReleaseError: no such format.
    """
    if name not in FORMATS:
        raise ReleaseError(f"format: there is no {name!r}; known are {', '.join(sorted(FORMATS))}")
    module, _, attribute = FORMATS[name].partition(":")
    return cast(Format, getattr(import_module(module), attribute)())
