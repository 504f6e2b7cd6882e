"""``python -m tests.npu FOLDER``: the tests that need torch_npu, in an environment of their own in FOLDER."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.npu import stub_cann

try:
    python, environment = stub_cann.make(Path(sys.argv[1]).absolute())
except stub_cann.MissingToolError as error:
    print(f"skipped: {error}")  # noqa: T201
    sys.exit(0)
os.execve(python, [str(python), "-m", "pytest", "-m", "npu", "tests/npu", *sys.argv[2:]], environment)
