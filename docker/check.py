"""Run a Dockerfile's steps in an empty folder, where there is no Docker engine: ``check.py DOCKERFILE [ARGUMENT ...]``

FROM is taken as met by this machine. COPY takes what git tracks, ENV and WORKDIR hold for the steps below, RUN must
succeed, and CMD, with the arguments added, must make the model ``chat`` and the gateway ready and end with status 0 on
SIGTERM.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
READY_S = 300


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """The instructions of a Dockerfile: keyword and the rest, continued lines joined."""
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        keyword, _, rest = line.strip().partition(" ")
        yield keyword.upper(), rest.strip()


class Build:
    """The state that one instruction leaves to the next."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root
        self.environment = dict(os.environ)
        self.command: list[str] = []

    def apply(self, keyword: str, rest: str) -> None:
        """Carry out one instruction.

        Raises:
            ValueError: it is of a kind that this script does not know.
            subprocess.CalledProcessError: a RUN failed.
        """
        print(f"--- {keyword} {rest}", flush=True)
        match keyword:
            case "WORKDIR":
                self.folder = self.root / rest.lstrip("/")
                self.folder.mkdir(parents=True, exist_ok=True)
            case "ENV":
                self.environment |= dict(part.split("=", 1) for part in shlex.split(rest))
            case "COPY":
                self._copy(*rest.split())
            case "RUN":
                subprocess.run(rest, shell=True, cwd=self.folder, env=self.environment, check=True)
            case "CMD":
                self.command = json.loads(rest)
            case "FROM" | "EXPOSE":
                pass
            case _:
                raise ValueError(f"{keyword}: not known to this script")

    def _copy(self, source: str, target: str) -> None:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--", source], cwd=PROJECT, check=True, capture_output=True, text=True
        )
        for name in filter(None, listed.stdout.split("\0")):
            to = self.folder / target / Path(name).relative_to("." if source == "." else Path(source).parent)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, to)


def run_command(build: Build, arguments: list[str]) -> int:
    """Start CMD, wait until it serves, stop it; returns its exit status."""
    print(f"--- CMD {build.command + arguments}", flush=True)
    with subprocess.Popen([*build.command, *arguments], cwd=build.folder, env=build.environment) as process:
        try:
            wait_ready(f"http://127.0.0.1:{port_of('--http-port', arguments, '8000')}/v2/models/chat/ready", process)
            wait_ready(f"http://127.0.0.1:{port_of('--openai-port', arguments, '9000')}/health/ready", process)
        finally:
            process.terminate()
    return process.returncode


def port_of(flag: str, arguments: list[str], default: str) -> str:
    return arguments[arguments.index(flag) + 1] if flag in arguments else default


def wait_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise TimeoutError(f"{url} was not ready; status {process.poll()}")


def main() -> int:
    dockerfile, *arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="image-") as root:
        build = Build(Path(root))
        for keyword, rest in instructions(Path(dockerfile).read_text(encoding="utf-8")):
            build.apply(keyword, rest)
        return run_command(build, arguments)


if __name__ == "__main__":
    sys.exit(main())
