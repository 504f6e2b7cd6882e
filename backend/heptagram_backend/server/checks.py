"""What can be wrong before the server is started; each fault is one line that says what to do."""

from __future__ import annotations

import importlib.metadata
import socket
import sys
import sysconfig
from collections.abc import Mapping
from ctypes.util import find_library
from pathlib import Path

from heptagram_backend.cache import VARIABLE, cache_dir
from heptagram_backend.errors import LaunchError
from heptagram_backend.server.find import TritonInstall

# The first Triton whose stub was built with a pybind11 that knows numpy 2.
NUMPY_2_TRITON = (2, 52)


def check_install(install: TritonInstall) -> None:
    """The server, its stub and this interpreter fit together.

    Raises:
        LaunchError: they do not.
    """
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    if install.stub_python != running:
        raise LaunchError(
            f"the Python stub of {install.binary} is built for Python {install.stub_python}, this is Python {running}: "
            f"make the virtual environment with python{install.stub_python}"
        )
    _check_numpy(install)
    libpython_folder()


def _check_numpy(install: TritonInstall) -> None:
    if install.version is None or install.version >= NUMPY_2_TRITON:
        return
    numpy = importlib.metadata.version("numpy")
    if int(numpy.split(".")[0]) >= 2:
        triton = ".".join(map(str, install.version))
        raise LaunchError(
            f"the Python stub of Triton {triton} crashes on strings with numpy {numpy}: pip install 'numpy<2', "
            f"or use Triton {'.'.join(map(str, NUMPY_2_TRITON))} or newer"
        )


def libpython_folder() -> Path | None:
    """The folder of this interpreter's shared library; None where the loader knows the library by itself.

    Raises:
        LaunchError: the interpreter was built or packaged without it.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    name = f"libpython{version}.so.1.0"
    for folder in (sysconfig.get_config_var("LIBDIR"), str(Path(sys.base_prefix) / "lib")):
        if folder and (Path(folder) / name).exists():
            return Path(folder)
    if find_library(f"python{version}"):
        return None
    raise LaunchError(
        f"{name} is missing, and the Python stub needs it: apt install libpython{version} (Debian, Ubuntu), "
        f"dnf install python{version}-libs (Fedora, RHEL), or use a Python built with --enable-shared"
    )


def check_path(what: str, path: Path) -> None:
    """Triton's Python stub can use ``path``: it has no locale, so names outside ASCII are none to it, and it dies.

    Raises:
        LaunchError: the path is not ASCII; ``what`` names it.
    """
    if not str(path).isascii():
        raise LaunchError(f"{what} {path}: Triton's Python backend reads ASCII paths only; move it to another folder")


def check_cache_path() -> None:
    """The same of the cache folder."""
    check_path(f"the cache folder ({VARIABLE})", cache_dir())


def check_import_path() -> None:
    """The same of the folders that modules come from."""
    for folder in sys.path[1:]:  # the first is that of the program, which the stub does not run
        check_path("the import path has", Path(folder))


def check_ports(host: str, ports: Mapping[str, int]) -> None:
    """Each port, given by the flag that sets it, is free and used once.

    Raises:
        LaunchError: one is not, or the host is not an address of this machine.
    """
    taken: dict[int, str] = {}
    for flag, port in ports.items():
        if not 1 <= port <= 65535:
            raise LaunchError(f"{flag} {port}: a port is 1 to 65535")
        if port in taken:
            raise LaunchError(f"{flag} {port}: already used by {taken[port]}; choose another port")
        taken[port] = flag
        _check_port(host, flag, port)


def _check_port(host: str, flag: str, port: int) -> None:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise LaunchError(f"--host {host}: {error.strerror}; give an address of this machine") from error
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise LaunchError(
                f"port {port} on {host} cannot be used ({error.strerror}): stop what holds it, or pass another {flag}"
            ) from error
