"""Checkpoints of compressed-tensors whose linear layers are int8: W8A8 with a scale a channel, rows quantized as they
come (vLLM's ``int-quantized``). Read here, for transformers would want the library that wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig

from heptagram_backend.errors import ReleaseError
from heptagram_backend.targets.loading import DTYPES, load_model
from heptagram_kernels.codes import Codes

_WEIGHT: Final = ".weight"
_SCALE: Final = ".weight_scale"
# What the codes mean; a scheme that says otherwise would be computed wrongly.
_WEIGHTS: Final = {"num_bits": 8, "type": "int", "symmetric": True}
_ROWS: Final = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
_STRATEGIES: Final = ("channel", "tensor")


def load_quantizable(
    checkpoint: Path, *, dtype: str, quantization: str | None, **options: Any
) -> tuple[Any, str, Mapping[str, Codes]]:
    """The model in plain numbers, how it is to be quantized, and the codes that its checkpoint already has.

    Args:
        quantization: ``none``, ``int8``, ``int4``; None: as the checkpoint is.

    Raises:
        ReleaseError: the weights are not there, do not fit, or are quantized otherwise.
    """
    config = AutoConfig.from_pretrained(checkpoint, local_files_only=True)
    found = _scheme(getattr(config, "quantization_config", None))
    if found is None:
        return load_model(checkpoint, dtype=dtype, **options), quantization or "none", {}
    if quantization not in (None, found):
        raise ReleaseError(f"engine.quantization: {quantization}; the checkpoint's weights are {found}: leave it out")
    try:
        weights, stored = _read(checkpoint, DTYPES[dtype])
        del config.quantization_config
        model = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)].from_pretrained(
            None, config=config, state_dict=weights, dtype=DTYPES[dtype], **options
        )
        return model.eval().requires_grad_(False), found, stored
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ReleaseError(f"checkpoint: {checkpoint}: its weights cannot be loaded ({error})") from error


def _scheme(declared: Any) -> str | None:
    """``int8`` where a config declares it; None where it declares nothing.

    Raises:
        ReleaseError: it declares something else.
    """
    if declared is None:
        return None
    place = "checkpoint: quantization_config"
    form = (declared.get("quant_method"), declared.get("format"))
    if form != ("compressed-tensors", "int-quantized"):
        raise ReleaseError(f"{place}: {' '.join(map(str, form))}; this runner takes compressed-tensors int-quantized")
    for name, group in declared.get("config_groups", {}).items():
        weights, rows = group.get("weights") or {}, group.get("input_activations") or {}
        wanted = [("weights", weights, _WEIGHTS), ("input_activations", rows, _ROWS)]
        for part, given, values in wanted:
            for key, value in values.items():
                if given.get(key) != value:
                    raise ReleaseError(f"{place}: {name}.{part}.{key}: {given.get(key)!r}; this runner takes {value!r}")
        if weights.get("strategy") not in _STRATEGIES:
            raise ReleaseError(
                f"{place}: {name}.weights.strategy: {weights.get('strategy')!r}; this runner takes "
                f"{' or '.join(_STRATEGIES)}"
            )
    return "int8"


def _read(checkpoint: Path, dtype: torch.dtype) -> tuple[dict[str, Tensor], dict[str, Codes]]:
    """All weights as plain numbers, and the codes of those that have a scale, by the names of their layers."""
    weights: dict[str, Tensor] = {}
    for file in sorted(checkpoint.glob("*.safetensors")):
        weights |= load_file(file)
    stored = {}
    for name in [name for name in weights if name.endswith(_SCALE)]:
        layer = name.removesuffix(_SCALE)
        codes, scales = weights[layer + _WEIGHT], weights.pop(name).float().view(-1, 1)
        stored[layer] = Codes(8, codes, scales.expand(codes.shape[0], 1))
        weights[layer + _WEIGHT] = stored[layer].weight().to(dtype)
    return weights, stored
