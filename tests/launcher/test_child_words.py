"""What child processes say is read as they said it, whatever the locale: Triton's stub has none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_WORDS = "Maß – 7 µs"
_SAYS_AND_FAILS = f"import sys; sys.{{stream}}.write({_WORDS!a} + '\\n'); sys.exit(1)"
_CONVERTS = """
from pathlib import Path
from heptagram_backend.checkpoint import Recipe, _make
from heptagram_backend.errors import ReleaseError
try:
    _make(Recipe("says_{stream}", 1, "says"), [Path("x.gguf")], Path("folder"))
except ReleaseError as error:
    print(ascii(str(error)))
"""
_ASKS = {
    "a conversion, stdout": _CONVERTS.format(stream="stdout"),
    "a conversion, stderr": _CONVERTS.format(stream="stderr"),
    "a package, stdout": f"""
from heptagram_backend.doctor import packages
print(ascii(packages._try(r"import json; print(json.dumps({_WORDS!a}, ensure_ascii=False))")))
""",
    "a package, stderr": """
from heptagram_backend.doctor import packages
print(ascii(packages._try("import says_stderr")))
""",
    "a self-test, stderr": """
from heptagram_backend.doctor import selftest
selftest._MODULE = "says_stderr"
print(ascii(selftest.one_answer(report=str)))
""",
}


@pytest.mark.parametrize("asks", _ASKS)
def test_words_are_read_in_any_locale(tmp_path: Path, asks: str) -> None:
    for stream in ("stdout", "stderr"):
        (tmp_path / f"says_{stream}.py").write_text(_SAYS_AND_FAILS.format(stream=stream))
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", _ASKS[asks]],
        env=os.environ | {"PYTHONPATH": path, **ascii_only},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert ascii(_WORDS)[1:-1] in done.stdout, done.stderr
