"""Telling a person what happens: one changing line on a terminal, plain lines otherwise."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import Self, TextIO


class Progress:
    """Stages of a start. Each stage is said once; on a terminal its seconds run, and details replace each other."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._began = time.monotonic()
        self._said: str | None = None

    def say(self, text: str) -> None:
        """Report the current stage."""
        if text == self._said and not self._terminal:
            return
        self._said = text
        line = f"[{time.monotonic() - self._began:5.1f} s] {text}"
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\x1b[K{line[:width]}")
        else:
            self._stream.write(f"{line}\n")
        self._stream.flush()

    def say_alone(self, text: str) -> None:
        """Report what a child's own progress bar then follows below."""
        self.say(text)
        self.close()

    def clear(self) -> None:
        """Take the changing line away."""
        if self._terminal and self._said is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
        self._said = None

    def close(self) -> None:
        """End the changing line."""
        if self._terminal and self._said is not None:
            self._stream.write("\n")
            self._stream.flush()
        self._said = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
