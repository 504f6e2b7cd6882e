"""The content of a checkpoint as one text, ``sha256:WHOLE+sample:PART``: written once, compared whenever it is loaded.

WHOLE is of every byte. It is read when a release is written and when somebody asks, for at a gigabyte a second it takes
minutes for a large checkpoint. PART is what each load compares, in milliseconds on any machine: configuration,
tokenizer and template whole; of weights the size, the head and blocks from end to end. It tells another, a half-copied
and a trained-on checkpoint; a byte flipped between the blocks it does not.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from heptagram_backend.cache import cache_dir, file_digest, published
from heptagram_backend.errors import ReleaseError

_FORM: Final = re.compile(r"sha256:(?P<whole>[0-9a-f]{64})(\+sample:(?P<sample>[0-9a-f]{64}))?")
# What is read of a folder; the rest of it may change.
_READ: Final = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "adapter.json",
    "*.safetensors",
    "*.safetensors.index.json",
)
_SAMPLED: Final = (".safetensors", ".gguf")
_HEAD: Final = 1 << 20
_BLOCK: Final = 4096
_BLOCKS: Final = 256


def is_content_hash(text: str) -> bool:
    return _FORM.fullmatch(text) is not None


def content_files(path: Path) -> list[Path]:
    """What makes the content of a file, or of a folder in Hugging Face layout."""
    if path.is_file():
        return [path]
    return sorted(file for pattern in _READ for file in path.glob(pattern))


def content_hash(files: Sequence[Path]) -> str:
    """Hash of ``files``; what was read before, and has kept size and time, is not read again."""
    return f"sha256:{_joined(files, _remembered)}+sample:{_joined(files, _sample)}"


def check_content(what: str, recorded: str, files: Sequence[Path], *, whole: bool = False) -> None:
    """Compare ``files`` with the hash ``recorded`` for ``what``: its sample, where there is one, or all bytes.

    Raises:
        ReleaseError: they are others; the message holds both hashes.
    """
    if not files:
        raise ReleaseError(f"{what}: the release was written for {recorded}, but there is nothing")
    match = _FORM.fullmatch(recorded)
    assert match is not None, "checked when the release was parsed"
    if match["sample"] and not whole:
        wanted, found = f"sample:{match['sample']}", f"sample:{_joined(files, _sample)}"
    else:
        wanted = f"sha256:{match['whole']}"
        found = f"sha256:{_joined(files, file_digest if whole else _remembered)}"
    if found != wanted:
        raise ReleaseError(
            f"{what}: the release was written for {wanted}, but {files[0].parent} holds {found}; put the right files "
            "there, or write the release anew"
        )


def _joined(files: Sequence[Path], digest: Callable[[Path], str]) -> str:
    """A single file may have any name."""
    lines = (f"{path.name if len(files) > 1 else ''}\0{digest(path)}\n" for path in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _sample(path: Path) -> str:
    if path.suffix not in _SAMPLED:
        return file_digest(path)
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with open(path, "rb") as handle:
        digest.update(handle.read(_HEAD))
        for place in range(_BLOCKS):
            handle.seek(max(0, size - _BLOCK) * place // (_BLOCKS - 1))
            digest.update(handle.read(_BLOCK))
    return digest.hexdigest()


def _remembered(path: Path) -> str:
    """The digest of a file, from the cache where it has kept its size and time since."""
    path = path.resolve()
    stat = path.stat()
    state = [str(path), stat.st_size, stat.st_mtime_ns, stat.st_ino]
    note = cache_dir() / "digests" / hashlib.sha256(str(path).encode()).hexdigest()[:32]
    try:
        known = json.loads((note / "digest.json").read_text(encoding="utf-8"))
        if known["state"] == state:
            return str(known["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not read before
    digest = file_digest(path)
    note.parent.mkdir(parents=True, exist_ok=True)
    with published(note) as folder:
        (folder / "digest.json").write_text(json.dumps({"state": state, "digest": digest}), encoding="utf-8")
    return digest
