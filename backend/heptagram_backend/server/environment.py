"""The environment of the server and of the stubs that it starts."""

from __future__ import annotations

import os
from collections.abc import Mapping

from heptagram_backend.cache import VARIABLE, cache_dir
from heptagram_backend.server.checks import libpython_folder
from heptagram_backend.server.find import TritonInstall
from heptagram_backend.server.runtime import Runtime


def server_environment(
    install: TritonInstall, runtime: Runtime, *, threads: int = 1, base: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Variables for tritonserver: its libraries, our Python, and ``threads`` compute threads a process."""
    libpython = libpython_folder()
    folders = [*map(str, install.libraries), *([str(libpython)] if libpython else [])]
    environment = dict(base)
    environment |= {
        "PATH": _joined([str(runtime.bin), base.get("PATH")]),
        "LD_LIBRARY_PATH": _joined([*folders, base.get("LD_LIBRARY_PATH")]),
        VARIABLE: str(cache_dir()),
        # Threads that spin while they wait slow a decode step down thirty times when anything else runs.
        "OMP_WAIT_POLICY": "PASSIVE",
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    return environment


def _joined(folders: list[str | None]) -> str:
    return os.pathsep.join(folder for folder in folders if folder)
