"""``heptagram gateway`` as a process of its own in front of a real server."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.children import child

_COMMAND = "import sys; from heptagram_client.main import main; sys.exit(main(sys.argv[1:]))"
_URL = re.compile(r"heptagram gateway: (http://\S+)/v1 ")


@dataclass
class Gateway:
    """``said`` are its lines on stderr, ``logged`` those of its access log."""

    process: subprocess.Popen[str]
    url: str = ""
    said: list[str] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").partition(":")
        return host, int(port)

    def stop(self, timeout_s: float = 20.0) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)


@contextmanager
def running_gateway(triton: str, *options: str, ignoring: Sequence[signal.Signals] = ()) -> Iterator[Gateway]:
    """A gateway on a free port, in front of the gRPC front ``triton``; ``ignoring`` is as for :func:`child`."""
    command = [sys.executable, "-c", _COMMAND, "gateway", "--triton", triton, "--port", "0", *options]
    with child(command, stderr=subprocess.PIPE, ignoring=ignoring) as process:
        gateway = Gateway(process)
        assert process.stdout is not None
        assert process.stderr is not None
        readers = [
            threading.Thread(target=gateway.logged.extend, args=(process.stdout,), daemon=True),
            threading.Thread(target=gateway.said.extend, args=(process.stderr,), daemon=True),
        ]
        for reader in readers:
            reader.start()
        try:
            gateway.url = _wait_url(gateway)
            yield gateway
        finally:
            process.kill()
            for reader in readers:
                reader.join()


def _wait_url(gateway: Gateway) -> str:
    deadline = time.monotonic() + 30
    while not (match := _URL.search("".join(gateway.said))):
        assert gateway.process.poll() is None, gateway.said
        assert time.monotonic() < deadline, gateway.said
        time.sleep(0.02)
    return match[1]
