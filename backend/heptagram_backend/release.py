"""``release.yaml``: the only configuration source of a version. Parsed and checked once, at load."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from heptagram_backend.errors import ReleaseError
from heptagram_backend.formats.base import AnswerBounds
from heptagram_backend.limits import Limits

FILE_NAME = "release.yaml"


_AT_LEAST_ONE = (
    "threads",
    "max_model_len",
    "max_num_seqs",
    "max_queue_size",
    "max_num_batched_tokens",
    "long_prefill_token_threshold",
    "max_deadline_ms",
)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of the ``k7`` engine; the names are the flags of ``heptagram serve``."""

    name: str = "k7"
    device: str = "cpu"
    dtype: str = "bfloat16"
    threads: int = 1
    max_model_len: int = 4096
    max_num_seqs: int = 8
    max_queue_size: int = 64
    max_num_batched_tokens: int = 128
    long_prefill_token_threshold: int = 64
    num_speculative_tokens: int = 7
    drafts: str = "auto"
    max_deadline_ms: int = 600_000
    mask_pool_rows: int = 1024

    def __post_init__(self) -> None:
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ReleaseError(f"engine.{name}: must be at least 1")
        if not 0 <= self.num_speculative_tokens <= 7:
            raise ReleaseError("engine.num_speculative_tokens: must be 0 to 7")
        if self.mask_pool_rows <= 8 * self.max_num_seqs:
            raise ReleaseError(f"engine.mask_pool_rows: must exceed 8 rows a sequence, here {8 * self.max_num_seqs}")


@dataclass(frozen=True, slots=True)
class Release:
    """One version of ``preprocess`` or ``generate``.

    ``checkpoint`` is a folder in Hugging Face layout, or ``embedded:NAME`` for a model that a package ships.
    ``vocabulary`` is the hash of the tokenizer; preprocess and generate of one rollout must agree on it.
    ``answer`` bounds what a constrained answer's schema leaves open, ``limits`` what a request may ask for.
    ``k7_layout`` is the argument layout that the version was written for; load compares it with the installed one.
    """

    served_model_name: str
    checkpoint: str
    format: str
    default_max_tokens: int = 2048
    vocabulary: str | None = None
    k7_layout: tuple[str, ...] = ()
    answer: AnswerBounds = field(default_factory=AnswerBounds)
    limits: Limits = field(default_factory=Limits)
    engine: EngineOptions = field(default_factory=EngineOptions)

    @classmethod
    def load(cls, version_dir: Path) -> Release:
        """Read ``release.yaml`` of a version folder.

        Raises:
            ReleaseError: missing, not YAML, unknown or missing keys, or a value out of range.
        """
        path = version_dir / FILE_NAME
        try:
            data = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError) as error:
            raise ReleaseError(f"{path}: cannot be read ({error})") from error
        return cls.parse(data, where=str(path))

    @classmethod
    def parse(cls, data: Any, *, where: str = FILE_NAME) -> Release:
        if not isinstance(data, dict):
            raise ReleaseError(f"{where}: must be a mapping")
        values = dict(data)
        try:
            engine = EngineOptions(**_section(values, "engine", where))
            answer = AnswerBounds(**_section(values, "answer", where))
            limits = Limits.parse(_section(values, "limits", where))
            layout = tuple(values.pop("k7_layout", None) or ())
            return cls(answer=answer, limits=limits, engine=engine, k7_layout=layout, **values)
        except TypeError as error:
            raise ReleaseError(f"{where}: {str(error).partition('.')[2] or error}") from error


def _section(values: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    section = values.pop(name, None) or {}
    if not isinstance(section, dict):
        raise ReleaseError(f"{where}: {name}: must be a mapping")
    return section
