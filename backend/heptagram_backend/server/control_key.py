"""What Triton's ports do not do for everybody, and the key to its model control, which is to run code there.

The key is new with each start, unless the operator gives one, and lies beside the server's shared-memory segments in a
file that only its user can read; :func:`find_key` finds it there. It reaches tritonserver in its command line, which
every user of a machine may list, so it is taken out of there again as soon as it has been read.
"""

from __future__ import annotations

import re
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from heptagram_backend.errors import LaunchError
from heptagram_backend.server.segments import kept_files

# Over HTTP as it is, over gRPC behind `triton-grpc-protocol-`.
HEADER: Final = "heptagram-control"
# Long enough, and free of what Triton's option is cut at.
_KEY: Final = re.compile(r"[A-Za-z0-9._~-]{16,256}")
# Where a process's arguments lie: fields 48 and 49 of /proc/PID/stat, counted from the one behind the name.
_ARGUMENTS: Final = slice(45, 47)


def new_key() -> str:
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Restricted:
    """``control_key`` opens the model repository. The word that opens the rest is told to nobody."""

    control_key: str = field(default_factory=new_key, repr=False)
    _closed: str = field(default_factory=new_key, repr=False)

    def options(self) -> list[str]:
        """For tritonserver's command line."""
        # No client of ours needs shared memory of the server's machine, and a region may be anybody's; the settings of
        # traces and logs name files that are written.
        closed = f"shared-memory,trace,logging:heptagram-closed={self._closed}"
        control = f"model-repository:{HEADER}={self.control_key}"
        flags = ("--http-restricted-api", "--grpc-restricted-protocol")
        return [f"{flag}={each}" for flag in flags for each in (closed, control)]

    def conceal(self, pid: int) -> None:
        """Take the words out of the arguments of a child that has read them; not where the kernel forbids ptrace."""
        with suppress(OSError), open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            status = Path(f"/proc/{pid}/stat").read_text()
            start, end = map(int, status.rpartition(")")[2].split()[_ARGUMENTS])
            memory.seek(start)
            arguments = memory.read(end - start) or b""
            for word in (self.control_key, self._closed):
                for found in re.finditer(re.escape(word.encode()), arguments):
                    memory.seek(start + found.start())
                    memory.write(b"*" * len(word))


def read_key(path: Path) -> str:
    """The key in a file of the operator's.

    Raises:
        LaunchError: it cannot be read, or is no key.
    """
    try:
        key = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise LaunchError(f"--control-key-file {path}: {error}") from error
    if not _KEY.fullmatch(key):
        raise LaunchError(f"--control-key-file {path}: must hold one key, 16 to 256 of A-Z a-z 0-9 . _ ~ -")
    return key


def find_key(host: str, port: int) -> str | None:
    """The key of the server of this user and machine whose HTTP front is at ``host`` and ``port``."""
    return next(iter(kept_files(file_name(host, port))), None)


def file_name(host: str, port: int) -> str:
    """What :meth:`~heptagram_backend.server.segments.Segments.keep` calls the file of that server."""
    with suppress(OSError):  # a host that is none; the connection says so
        host = str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
    return f"control-{host}-{port}"
