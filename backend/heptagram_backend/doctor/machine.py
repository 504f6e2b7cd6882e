"""The machine: interpreter, C library, cache folder, shared memory, ports."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from heptagram_backend.cache import VARIABLE, cache_dir
from heptagram_backend.doctor.finding import Finding
from heptagram_backend.errors import LaunchError
from heptagram_backend.server.checks import check_cache_path, check_import_path, check_ports, libpython_folder
from heptagram_backend.server.find import wheel_obstacle

PORTS: Final = {"--http-port": 8000, "--grpc-port": 8001, "--metrics-port": 8002}
_SHARED_MEMORY: Final = Path("/dev/shm")
# A stub begins with a few MiB and grows with the largest tensors in flight.
_WANTED_SHARED_MIB: Final = 64
# The embedded checkpoint takes 0.3 GiB, a converted one as much as its weights.
_WANTED_DISK_GIB: Final = 2.0
_VERSIONS: Final = ((3, 11), (3, 12))


def python() -> Finding:
    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info[:2] not in _VERSIONS:
        return Finding("python", "missing", found, "make the virtual environment with Python 3.11 or 3.12")
    try:
        libpython_folder()
        check_import_path()
    except LaunchError as error:
        return Finding("python", "missing", found, str(error))
    return Finding("python", "ok", found)


def c_library() -> Finding:
    name, version = platform.libc_ver()
    found = f"{name or 'not glibc'} {version}".strip()
    obstacle = wheel_obstacle()
    return Finding("C library", "note" if obstacle else "ok", found, obstacle or "")


def cache() -> Finding:
    folder = cache_dir()
    advice = f"set {VARIABLE} to a folder on a disk with room that you may write to"
    try:
        check_cache_path()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free / 2**30
    except LaunchError as error:
        return Finding("cache folder", "missing", str(folder), f"{error}: {advice}")
    except OSError as error:
        return Finding("cache folder", "missing", f"{folder}: {error.strerror}", advice)
    found = f"{folder}, {free:.1f} GiB free"
    return (
        Finding("cache folder", "ok", found)
        if free >= _WANTED_DISK_GIB
        else Finding("cache folder", "note", found, f"a first start may need {_WANTED_DISK_GIB:.0f} GiB: {advice}")
    )


def shared_memory() -> Finding:
    name = str(_SHARED_MEMORY)
    if not os.access(_SHARED_MEMORY, os.W_OK):
        return Finding(name, "missing", "not there, or not writable", f"mount a tmpfs on {name}")
    usage = shutil.disk_usage(_SHARED_MEMORY)
    free = usage.free / 2**20
    found = f"{usage.total / 2**20:.0f} MiB, {free:.0f} MiB free"
    if free < _WANTED_SHARED_MIB:
        return Finding(name, "note", found, "give it 64 MiB and more: docker run --shm-size=256m")
    return Finding(name, "ok", found)


def ports() -> Finding:
    name = f"ports {min(PORTS.values())}-{max(PORTS.values())}"
    try:
        check_ports("127.0.0.1", PORTS)
    except LaunchError as error:
        return Finding(name, "note", "in use: is a server running already?", str(error))
    return Finding(name, "ok", "free on 127.0.0.1")
