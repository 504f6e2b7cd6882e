"""Weights of a DSpark drafter from safetensors: every name and shape is checked before anything is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from heptagram_backend.drafts.dspark.config import DSparkConfig
from heptagram_backend.drafts.dspark.network import DraftNetwork
from heptagram_backend.errors import ReleaseError

_EMBEDDING: Final = "embed_tokens.weight"
_HEAD: Final = "lm_head.weight"
DRAFT_TO_TARGET: Final = "d2t"
_SHOWN: Final = 4


def load_network(folder: Path, *, target: Path, max_position: int, dtype: torch.dtype) -> DraftNetwork:
    """The drafter in ``folder`` for the target checkpoint in ``target``.

    A drafter without embeddings or output layer of its own has the target's, which is what they are copies of.

    Raises:
        ReleaseError: the folder is no drafter, its weights do not fit its config, or it is for another target.
    """
    config = DSparkConfig.load(folder)
    check_target(config, target)
    weights = read_weights(folder)
    offsets = weights.get(DRAFT_TO_TARGET)
    proposed = None if offsets is None else _proposed(config, offsets, str(folder))
    borrowed = {_EMBEDDING, _HEAD} - weights.keys()
    if borrowed:
        ends = target_ends(target)
        if proposed is not None and _HEAD in ends:
            ends[_HEAD] = ends[_HEAD][proposed]
        weights |= {name: tensor for name, tensor in ends.items() if name in borrowed}
    return fit(config, weights, max_position=max_position, dtype=dtype, where=str(folder))


def fit(
    config: DSparkConfig, weights: Mapping[str, Tensor], *, max_position: int, dtype: torch.dtype, where: str
) -> DraftNetwork:
    """A network of ``weights``, in ``dtype``.

    Raises:
        ReleaseError: names are missing or unknown, or shapes differ; the message names them.
    """
    with torch.device("meta"):
        network = DraftNetwork(config, max_position=1)
    wanted = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    _refuse(where, "lacks", sorted(wanted.keys() - weights.keys()))
    _refuse(where, "has what no DSpark drafter of this config has:", sorted(weights.keys() - wanted.keys()))
    other = [
        f"{name} {list(weights[name].shape)} instead of {list(shape)}"
        for name, shape in sorted(wanted.items())
        if tuple(weights[name].shape) != shape
    ]
    _refuse(where, "does not fit its config.json:", other)
    whole = [name for name in sorted(wanted) if name != DRAFT_TO_TARGET and not weights[name].is_floating_point()]
    _refuse(where, "is quantized, which this drafter cannot run:", whole)
    network = DraftNetwork(config, max_position=max_position, dtype=dtype)
    network.load_state_dict({name: _cast(tensor, dtype) for name, tensor in weights.items()}, assign=True)
    return network.eval().requires_grad_(False)


def check_target(config: DSparkConfig, target: Path) -> None:
    """The target must have the sizes that the drafter was trained on.

    Raises:
        ReleaseError: it has others; the message names the field.
    """
    try:
        sizes = json.loads((target / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReleaseError(f"checkpoint: {target / 'config.json'} cannot be read ({error})") from error
    sizes = sizes.get("text_config", sizes)
    wanted = {
        "hidden_size": config.hidden_size,
        "vocab_size": config.vocab_size,
        "num_hidden_layers": config.num_target_layers,
    }
    for name, value in wanted.items():
        if sizes.get(name) != value:
            raise ReleaseError(
                f"drafter: it was made for a target with {name} {value}, but the checkpoint's is {sizes.get(name)}; "
                "choose the drafter of this checkpoint"
            )


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of the safetensors files in ``folder``, mapped from disk.

    Raises:
        ReleaseError: there is no such file, or one cannot be read.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ReleaseError(f"drafter: {folder} holds no *.safetensors")
    weights: dict[str, Tensor] = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as tensors:
                weights |= {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise ReleaseError(f"drafter: {file} cannot be read ({error})") from error
    return weights


def target_ends(target: Path) -> dict[str, Tensor]:
    """The embedding and the output layer of a target checkpoint, under a drafter's names; tied ones are one tensor."""
    found: dict[str, Tensor] = {}
    for file in sorted(target.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                if name.endswith(_EMBEDDING):
                    found[_EMBEDDING] = tensors.get_tensor(name)
                elif name == _HEAD:
                    found[_HEAD] = tensors.get_tensor(name)
    if _EMBEDDING in found:
        found.setdefault(_HEAD, found[_EMBEDDING])
    return found


def _proposed(config: DSparkConfig, offsets: Tensor, where: str) -> Tensor:
    """The target's tokens that are proposed, int64 [draft vocabulary].

    Raises:
        ReleaseError: ``offsets`` do not name as many different tokens.
    """
    if offsets.dtype == torch.int64 and tuple(offsets.shape) == (config.draft_vocab_size,):
        tokens = torch.arange(config.draft_vocab_size) + offsets
        within = int(tokens.min()) >= 0 and int(tokens.max()) < config.vocab_size
        if within and len(set(tokens.tolist())) == len(tokens):
            return tokens
    raise ReleaseError(
        f"drafter: {where}: d2t must hold int64 [{config.draft_vocab_size}] and lead to as many tokens of the target"
    )


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _refuse(where: str, fault: str, names: list[str]) -> None:
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise ReleaseError(f"drafter: {where} {fault} {', '.join(names[:_SHOWN])}{more}")
