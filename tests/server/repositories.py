"""Writes the repository that the server tests load: the shipped models, and the probe models beside them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "model_repository"
_MODEL = """\
import sys

sys.path.insert(0, {root!r})
from tests.server.probe import {name} as TritonPythonModel  # noqa: E402, F401
"""
_RELEASE = "served_model_name: probe\ncheckpoint: none\nformat: probe\n"


def write_probes(target: Path) -> None:
    """Add ``probe_chat``, ``probe_preprocess`` and ``probe_generate``: the shipped configs under other names."""
    for name in ("preprocess", "generate", "chat"):
        text = (SHIPPED / name / "config.pbtxt").read_text()
        text = re.sub(r'name: "(chat|preprocess|generate)"', r'name: "probe_\1"', text)
        version = target / f"probe_{name}" / "1"
        version.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(text)
        if name != "chat":
            (version / "model.py").write_text(_MODEL.format(root=str(ROOT), name=f"Probe{name.title()}"))
            (version / "release.yaml").write_text(_RELEASE)


def copy_shipped(target: Path, *models: str) -> None:
    for name in models:
        shutil.copytree(SHIPPED / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
