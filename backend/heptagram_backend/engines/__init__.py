"""Engines by name. Each is a function that builds one from a release, loaded when a release asks for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import cast

from heptagram_backend.engine_api import Engine
from heptagram_backend.errors import ReleaseError
from heptagram_backend.release import Release
from heptagram_kernels import compile_cache

Build = Callable[[Release, Path, str], Engine]

ENGINES: dict[str, str] = {"k7": "heptagram_backend.engines.k7:build"}


def load_engine(release: Release, checkpoint: Path, version: str) -> Engine:
    """Build the engine that ``release`` names, over the checkpoint folder, for the model version ``version``.

    Raises:
        ReleaseError: there is no such engine, or it cannot run this release here.
    """
    name = release.engine.name
    if name not in ENGINES:
        raise ReleaseError(f"engine.name: there is no {name!r}; known are {', '.join(sorted(ENGINES))}")
    # subtle: must stand before torch is imported, which the module does. Spinning OpenMP threads made a step 30
    # times slower beside any other busy process.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OMP_NUM_THREADS", str(release.engine.threads))
    compile_cache.use(os.environ)
    module, _, function = ENGINES[name].partition(":")
    return cast(Build, getattr(import_module(module), function))(release, checkpoint, version)
