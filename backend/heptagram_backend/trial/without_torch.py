"""Lets a process that only compiles grammars load the grammar library without torch.

XGrammar imports torch and transformers for kernels and tensors that such a process never touches: 1.7 s and 180 MB
against 0.3 s and 30 MB without them (0.2.7, of which this is the pinned version's way).
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Nothing:
    """What any name of an absent library is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes what it is given."""


class _Absent(ModuleType):
    def __getattr__(self, name: str) -> type[_Nothing]:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_Nothing,), {})


def hide_torch() -> None:
    """Put nothing in the place of both. The library below XGrammar does without torch by itself, if it is told so."""
    sys.modules["torch"] = None  # type: ignore[assignment]
    import_module("tvm_ffi")
    for name in ("torch", "transformers"):
        sys.modules[name] = _Absent(name)
