"""Run in a peer's environment: what an installed package needs, one requirement a line, without some of it.

``python needs.py PACKAGE SKIPPED ...``. Local version labels go, because the labelled builds are elsewhere.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import requires


def needs(requirements: Iterable[str], skipped: Sequence[str]) -> Iterator[str]:
    """
    >>> list(needs(["torch==2.13.0+cpu; x == 'y'", "torchaudio", "numba; extra == 'speed'"], ["torchaudio"]))
    ["torch==2.13.0; x == 'y'"]
    """
    for requirement in requirements:
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        if name and name[0] not in skipped and "extra ==" not in requirement:
            yield re.sub(r"\+\w+", "", requirement)


if __name__ == "__main__":
    sys.stdout.write("\n".join(needs(requires(sys.argv[1]) or (), sys.argv[2:])) + "\n")
