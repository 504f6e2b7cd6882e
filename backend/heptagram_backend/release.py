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
    "block_size",
    "kv_cache_blocks",
    "kv_cache_memory",
    "max_deadline_ms",
    "max_drain_ms",
)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of the ``k7`` engine; the names are the flags of ``heptagram serve``.

    ``max_num_batched_tokens`` bounds the rows of a forward: eight for each running sequence, the rest for prompts
    (by default 64).
    ``kv_cache_blocks``, or ``kv_cache_memory`` in bytes, sizes the cache; without them it holds ``max_num_seqs``
    sequences of ``max_model_len``. ``max_drain_ms`` is how long an unloaded version may still run requests.
    """

    name: str = "k7"
    device: str = "cpu"
    dtype: str = "bfloat16"
    threads: int = 1
    max_model_len: int = 4096
    max_num_seqs: int = 8
    max_queue_size: int = 64
    max_num_batched_tokens: int | None = None
    long_prefill_token_threshold: int = 64
    block_size: int = 32
    enable_prefix_caching: bool = True
    kv_cache_blocks: int | None = None
    kv_cache_memory: int | None = None
    num_speculative_tokens: int = 7
    drafts: str = "auto"
    max_deadline_ms: int = 600_000
    max_drain_ms: int = 120_000
    mask_pool_rows: int = 1024

    def __post_init__(self) -> None:
        for name in _AT_LEAST_ONE:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ReleaseError(f"engine.{name}: must be at least 1")
        if not 0 <= self.num_speculative_tokens <= 7:
            raise ReleaseError("engine.num_speculative_tokens: must be 0 to 7")
        if self.kv_cache_blocks is not None and self.kv_cache_memory is not None:
            raise ReleaseError("engine.kv_cache_memory: the size of the cache is given by kv_cache_blocks already")
        if self.batched_tokens % 8 or self.batched_tokens <= 8 * self.max_num_seqs:
            raise ReleaseError(
                "engine.max_num_batched_tokens: must be a multiple of 8 and exceed 8 rows a sequence, here "
                f"{8 * self.max_num_seqs}"
            )
        if self.mask_pool_rows <= 8 * self.max_num_seqs:
            raise ReleaseError(f"engine.mask_pool_rows: must exceed 8 rows a sequence, here {8 * self.max_num_seqs}")

    @property
    def batched_tokens(self) -> int:
        return self.max_num_batched_tokens or 8 * self.max_num_seqs + 64


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
