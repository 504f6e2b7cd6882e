"""``release.yaml``: the only configuration source of a version. Parsed and checked once, at load.

What it records of the checkpoint and of installed packages is compared by :mod:`heptagram_backend.recorded`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml

from heptagram_backend.content import is_content_hash
from heptagram_backend.errors import ReleaseError
from heptagram_backend.formats.base import AnswerBounds
from heptagram_backend.limits import Limits
from heptagram_backend.sampling import REJECTION_SAMPLE_METHODS

FILE_NAME = "release.yaml"
DRAFT_WIDTHS: Final = ("auto", "full")

_RENAMED: Final = {"engine.max_queue": "max_queue_size"}
_KINDS: Final = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"}

QUANTIZATIONS: Final = ("none", "int8", "int4")

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

    ``quantization`` of the linear layers: ``none``; ``int8``, W8A8 with a scale a channel and rows quantized as they
    come; ``int4``, weights as in GGUF's Q4_1, the head at eight bits. By default as the checkpoint is.
    ``max_num_batched_tokens`` bounds the rows of a forward: eight for each running sequence, the rest for prompts
    (by default 64).
    ``kv_cache_blocks``, or ``kv_cache_memory`` in bytes, sizes the cache; without them it holds ``max_num_seqs``
    sequences of ``max_model_len``. ``max_drain_ms`` is how long an unloaded version may still run requests.
    ``drafts`` says where drafts come from, ``drafter`` is the folder of a DSpark drafter (inside the checkpoint, if the
    path is not absolute).
    ``rejection_sample_method`` says how drafts of sampled answers are verified, under vLLM's names: ``strict`` ones
    equal what the seed draws without them, ``probabilistic`` ones are accepted with their probability. Both have the
    exact distribution; only under ``strict`` is a seed's answer the same whatever is drafted.
    ``draft_width`` says how many of the drafts a step verifies: ``full`` all of them, ``auto`` those that are worth
    their rows beside whatever else runs, by measured acceptance and measured times. Under either, a DSpark drafter's
    block ends before the first draft whose confidence lies below ``dspark_confidence_threshold`` (0 to 1).
    ``pipelined`` fills masks, and tells what the step before did, on threads beside the forward. By default where the
    device leaves the host free; on the CPU the threads only take what they compute from the forward.
    """

    name: str = "k7"
    device: str = "cpu"
    dtype: str = "bfloat16"
    quantization: str | None = None
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
    drafter: str | None = None
    rejection_sample_method: str = "strict"
    draft_width: str = "auto"
    dspark_confidence_threshold: float = 0.0
    max_deadline_ms: int = 600_000
    max_drain_ms: int = 120_000
    mask_pool_rows: int = 1024
    pipelined: bool | None = None

    def __post_init__(self) -> None:
        for name in _AT_LEAST_ONE:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ReleaseError(f"engine.{name}: must be at least 1")
        if self.quantization not in (None, *QUANTIZATIONS):
            raise ReleaseError(f"engine.quantization: {self.quantization!r}; choose {', '.join(QUANTIZATIONS)}")
        if not 0 <= self.num_speculative_tokens <= 7:
            raise ReleaseError("engine.num_speculative_tokens: must be 0 to 7")
        if self.rejection_sample_method not in REJECTION_SAMPLE_METHODS:
            raise ReleaseError(f"engine.rejection_sample_method: must be one of {', '.join(REJECTION_SAMPLE_METHODS)}")
        if self.draft_width not in DRAFT_WIDTHS:
            raise ReleaseError(f"engine.draft_width: must be one of {', '.join(DRAFT_WIDTHS)}")
        if not 0 <= self.dspark_confidence_threshold <= 1:
            raise ReleaseError("engine.dspark_confidence_threshold: must be 0 to 1")
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

    @property
    def is_pipelined(self) -> bool:
        return self.device != "cpu" if self.pipelined is None else self.pipelined


@dataclass(frozen=True, slots=True)
class Release:
    """One version of ``preprocess`` or ``generate``.

    ``checkpoint`` is a folder in Hugging Face layout, or ``embedded:NAME`` for a model that a package ships.
    ``adapter`` is a folder of ``heptagram train-adapter``, or ``shipped:NAME``, whose weights are merged into it.
    ``vocabulary`` is the hash of the tokenizer; preprocess and generate of one rollout must agree on it.
    ``vocabulary_width`` is how many logits a row has: the tokens, and what pads them.
    ``answer`` bounds what a constrained answer's schema leaves open, ``limits`` what a request may ask for.
    ``k7_layout`` is the argument layout that the version was written for; load compares it with the installed one.
    ``checkpoint_hash``, ``drafter_hash`` and ``adapter_hash`` are those of :mod:`heptagram_backend.content`;
    ``versions`` are those of the packages that the version was written beside, ``created_at`` is when (ISO 8601).
    """

    served_model_name: str
    checkpoint: str
    format: str
    adapter: str | None = None
    default_max_tokens: int = 2048
    checkpoint_hash: str | None = None
    vocabulary: str | None = None
    vocabulary_width: int | None = None
    drafter_hash: str | None = None
    adapter_hash: str | None = None
    versions: Mapping[str, str] | None = None
    created_at: str | None = field(default=None, compare=False)
    k7_layout: tuple[str, ...] = ()
    answer: AnswerBounds = field(default_factory=AnswerBounds)
    limits: Limits = field(default_factory=Limits)
    engine: EngineOptions = field(default_factory=EngineOptions)

    def __post_init__(self) -> None:
        for name in ("checkpoint_hash", "drafter_hash", "adapter_hash"):
            value = getattr(self, name)
            if value is not None and not is_content_hash(value):
                raise ReleaseError(f"{name}: must be `sha256:` and 64 hexadecimal digits, not {value!r}")
        if self.vocabulary_width is not None and self.vocabulary_width < 1:
            raise ReleaseError("vocabulary_width: must be at least 1")

    @property
    def unrecorded(self) -> tuple[str, ...]:
        """What the file does not say, so that load has nothing to compare."""
        wanted = ["checkpoint_hash", "vocabulary", "vocabulary_width", "versions", "created_at"]
        wanted += ["drafter_hash"] if self.engine.drafter else []
        wanted += ["adapter_hash"] if self.adapter else []
        return tuple(name for name in wanted if getattr(self, name) is None)

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
        versions = _section(values, "versions", where)
        sections = {name: _section(values, name, where) for name in ("engine", "answer", "limits")}
        layout = values.pop("k7_layout", None) or []
        if not isinstance(layout, list) or not all(isinstance(line, str) for line in layout):
            raise ReleaseError(f"{where}: k7_layout: must be a list of lines")
        _check_keys(cls, values, where)
        _check_keys(AnswerBounds, sections["answer"], where, "answer.")
        _check_keys(EngineOptions, sections["engine"], where, "engine.")
        _check_types(cls, values, where)
        _check_types(EngineOptions, sections["engine"], where, "engine.")
        _check_origin(versions, values.get("created_at"), where)
        return cls(
            versions=versions or None,
            answer=AnswerBounds(**sections["answer"]),
            limits=Limits.parse(sections["limits"]),
            engine=EngineOptions(**sections["engine"]),
            k7_layout=tuple(layout),
            **values,
        )


def _check_keys(kind: Any, values: Mapping[Any, Any], where: str, section: str = "") -> None:
    """Refuse keys that ``kind`` does not have, and the absence of those that it needs."""
    specs = {spec.name: spec for spec in fields(kind)}
    for key in values:
        name = f"{section}{key}"
        if name in _RENAMED:
            raise ReleaseError(f"{where}: {name} is called {_RENAMED[name]} now; rename it")
        if key not in specs:
            raise ReleaseError(f"{where}: there is no {name}; known are {', '.join(specs)}")
    for key, spec in specs.items():
        if spec.default is MISSING and spec.default_factory is MISSING and key not in values:
            raise ReleaseError(f"{where}: {section}{key} is missing")


def _check_types(kind: Any, values: Mapping[str, Any], where: str, section: str = "") -> None:
    """Refuse values of another type than ``kind`` declares; YAML makes text of what is quoted."""
    types = {spec.name: str(spec.type).partition(" | ") for spec in fields(kind)}
    for key, value in values.items():
        wanted, _, optional = types[key]
        named = type(value).__name__
        fits = named == wanted or (wanted == "float" and named == "int") or (optional and value is None)
        if wanted in _KINDS and not fits:
            raise ReleaseError(f"{where}: {section}{key}: must be {_KINDS[wanted]}, not {value!r}")


def _check_origin(versions: Mapping[Any, Any], created_at: str | None, where: str) -> None:
    for package, version in versions.items():
        if not isinstance(package, str) or not isinstance(version, str):
            raise ReleaseError(f"{where}: versions.{package}: must be text, not {version!r}; put it in quotes")
    try:
        _ = created_at and datetime.fromisoformat(created_at)
    except ValueError:
        raise ReleaseError(f"{where}: created_at: must be a time of ISO 8601, not {created_at!r}") from None


def _section(values: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    section = values.pop(name, None) or {}
    if not isinstance(section, dict):
        raise ReleaseError(f"{where}: {name}: must be a mapping")
    return section
