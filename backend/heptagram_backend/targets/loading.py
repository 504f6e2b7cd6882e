"""What every target that runs transformers' model code does first: read the config, check the options, load weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM

from heptagram_backend.errors import ReleaseError

DTYPES: Final = {"bfloat16": torch.bfloat16, "float32": torch.float32}
# These rotary embeddings change with the longest position in the batch, so company would change an answer.
_COMPANY_DEPENDENT_ROPE: Final = ("dynamic", "longrope")


def load_config(checkpoint: Path, *, types: Sequence[str], dtype: str, max_model_len: int) -> Any:
    """The config of a checkpoint that a target for ``types`` of models can run with these options.

    Raises:
        ReleaseError: the checkpoint or an option does not fit; the message names it.
    """
    try:
        config = AutoConfig.from_pretrained(checkpoint, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ReleaseError(f"checkpoint: {checkpoint} is no checkpoint that transformers reads ({error})") from error
    if config.model_type not in types:
        raise ReleaseError(f"checkpoint: model type {config.model_type!r}; this runner takes {', '.join(types)}")
    for rope in _rope_types(getattr(config, "rope_parameters", None) or {}):
        if rope in _COMPANY_DEPENDENT_ROPE:
            raise ReleaseError(
                f"checkpoint: rope type {rope!r} depends on the batch; use default, linear, yarn or llama3"
            )
    if dtype not in DTYPES:
        raise ReleaseError(f"engine.dtype: {dtype!r}; choose {' or '.join(DTYPES)}")
    if max_model_len > config.max_position_embeddings:
        raise ReleaseError(
            f"engine.max_model_len: {max_model_len} exceeds the checkpoint's {config.max_position_embeddings} positions"
        )
    return config


def _rope_types(parameters: Mapping[str, Any]) -> Iterator[str]:
    """The rope type of a model, or of each kind of its layers."""
    yield parameters.get("rope_type", "default")
    for inner in parameters.values():
        if isinstance(inner, Mapping):
            yield inner.get("rope_type", "default")


def load_model(checkpoint: Path, *, dtype: str, **options: Any) -> Any:
    """The model for inference. ``options`` are those of ``from_pretrained``.

    Raises:
        ReleaseError: the weights are not there, or do not fit.
    """
    try:
        model = AutoModelForCausalLM.from_pretrained(
            checkpoint, dtype=DTYPES[dtype], local_files_only=True, use_safetensors=True, **options
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ReleaseError(f"checkpoint: {checkpoint}: its weights cannot be loaded ({error})") from error
    return model.eval().requires_grad_(False)
