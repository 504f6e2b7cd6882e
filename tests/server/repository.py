"""Writes a repository of test models: the shipped configs and the shipped relay around another engine."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "model_repository"
_MODEL = """\
import sys

sys.path.insert(0, {root!r})
from tests.server.{module} import {name} as TritonPythonModel  # noqa: E402, F401
"""
_RELEASE = "served_model_name: probe\ncheckpoint: none\nformat: probe\n"


def write_probes(target: Path, kind: str = "Probe") -> Path:
    """Copy the shipped repository; preprocess and generate become those of ``probe_models``, or of another kind."""
    shutil.copytree(SHIPPED, target, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("preprocess", "generate"):
        version = target / name / "1"
        (version / "model.py").write_text(
            _MODEL.format(root=str(ROOT), module=f"{kind.lower()}_models", name=f"{kind}{name.title()}")
        )
        (version / "release.yaml").write_text(_RELEASE)
    return target
