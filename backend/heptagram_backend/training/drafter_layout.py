"""A drafter for a target: its config, its first weights, and its folder in DeepSpec's layout.

The embedding and the output layer are the target's and stay as they are, so the folder holds neither. The layers begin
as copies of the target's last ones, the projection of hidden states as its last tap: far from useful, but nearer to it
than random numbers, which matters where training is short.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from torch import Tensor

from heptagram_backend.drafts.dspark.config import DSparkConfig
from heptagram_backend.drafts.dspark.loading import DRAFT_TO_TARGET, fit, read_weights, target_ends
from heptagram_backend.drafts.dspark.network import DraftNetwork
from heptagram_backend.errors import ReleaseError
from heptagram_backend.training.drafter_data import Answer

ENDS: Final = ("embed_tokens.weight", "lm_head.weight")
_COPIED: Final = (
    "rms_norm_eps",
    "hidden_act",
    "num_attention_heads",
    "num_key_value_heads",
    "hidden_size",
    "vocab_size",
    "max_position_embeddings",
    "rope_parameters",
)
_SMALL: Final = 0.02


@dataclass(frozen=True, slots=True)
class Shape:
    """What is chosen for a drafter; all else is the target's. ``draft_vocab`` 0: all tokens are proposed.
    ``intermediate`` 0: as wide as the target's."""

    layers: int = 2
    intermediate: int = 0
    block_size: int = 7
    markov_rank: int = 64
    markov: str = "vanilla"
    draft_vocab: int = 8192


def tap_layers(count: int, taps: int) -> list[int]:
    """``taps`` of a target's ``count`` layers, evenly from the second to the last but two.

    >>> tap_layers(36, 5)
    [1, 9, 17, 25, 33]
    """
    first, last = min(1, count - 2), max(min(1, count - 2), count - 3)
    if taps < 1 or taps > last - first + 1:
        raise ReleaseError(f"taps: {taps}; a target of {count} layers allows 1 to {last - first + 1}")
    return [first + round(place * (last - first) / max(1, taps - 1)) for place in range(taps)]


def read_target(checkpoint: Path) -> dict[str, Any]:
    """``config.json`` of a target.

    Raises:
        ReleaseError: it cannot be read.
    """
    try:
        config: dict[str, Any] = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReleaseError(f"checkpoint: {checkpoint / 'config.json'} cannot be read ({error})") from error
    return config


def drafter_config(target: Mapping[str, Any], shape: Shape, taps: Sequence[int], mask_token: int) -> dict[str, Any]:
    """``config.json`` of a drafter in the Qwen3 layout, for a target of the Llama or Qwen kind."""
    heads = target["num_attention_heads"]
    reduced = 0 < shape.draft_vocab < target["vocab_size"]
    return {
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        **{name: target[name] for name in _COPIED if name in target},
        "head_dim": target.get("head_dim") or target["hidden_size"] // heads,
        "attention_bias": False,
        "intermediate_size": shape.intermediate or target["intermediate_size"],
        "num_hidden_layers": shape.layers,
        "block_size": shape.block_size,
        "mask_token_id": mask_token,
        "target_layer_ids": list(taps),
        "num_target_layers": target["num_hidden_layers"],
        "markov_rank": shape.markov_rank,
        "markov_head_type": shape.markov,
        "enable_confidence_head": True,
        "confidence_head_with_markov": shape.markov_rank > 0,
        "tie_word_embeddings": False,
        **({"draft_vocab_size": shape.draft_vocab} if reduced else {}),
    }


def mask_token(answers: Iterable[Answer], vocab_size: int) -> int:
    """A token that no prompt or answer holds, the first one: control tokens come first in most vocabularies."""
    used = torch.zeros(vocab_size, dtype=torch.bool)
    for answer in answers:
        used[answer.tokens] = True
    return int((~used).nonzero()[0])


def draft_vocabulary(answers: Iterable[Answer], vocab_size: int, size: int) -> Tensor:
    """The ``size`` tokens that answers hold most often, then prompts, then the first ids; int64, rising."""
    said: Counter[int] = Counter()
    read: Counter[int] = Counter()
    for answer in answers:
        tokens = answer.tokens.tolist()
        read.update(tokens[: answer.prompt])
        said.update(tokens[answer.prompt :])
    ordered = [token for counts in (said, read) for token, _ in counts.most_common()]
    chosen = list(dict.fromkeys([*ordered, *range(vocab_size)]))[:size]
    return torch.tensor(sorted(chosen))


@dataclass(frozen=True, slots=True)
class Plan:
    """What a drafter is from its first step on: its ``config.json``, and the tokens that it proposes, int64, rising."""

    config: Mapping[str, Any]
    vocabulary: Tensor


def plan(folder: Path, target: Mapping[str, Any], shape: Shape, taps: Sequence[int], answers: Sequence[Answer]) -> Plan:
    """The plan of the drafter in ``folder``, where there is one; otherwise a new one, its vocabulary by ``answers``.

    Raises:
        ReleaseError: what is in the folder is none.
    """
    if (folder / "config.json").exists():
        config = DSparkConfig.load(folder)
        offsets = read_weights(folder).get(DRAFT_TO_TARGET, torch.zeros(config.vocab_size, dtype=torch.int64))
        return Plan(config.raw, torch.arange(len(offsets)) + offsets)
    raw = drafter_config(target, shape, taps, mask_token(answers, target["vocab_size"]))
    size = raw.get("draft_vocab_size", target["vocab_size"])
    return Plan(raw, draft_vocabulary(answers, target["vocab_size"], size))


def first_network(checkpoint: Path, plan: Plan, *, max_position: int, seed: int) -> DraftNetwork:
    """An untrained drafter in float32, all but its ends to be trained.

    Raises:
        ReleaseError: the config is none, or does not fit the target.
    """
    config, vocabulary = DSparkConfig.parse(dict(plan.config), where="the drafter's config"), plan.vocabulary
    ends, target = target_ends(checkpoint), read_weights(checkpoint)
    generator = torch.Generator().manual_seed(seed)
    with torch.device("meta"):
        wanted = {name: tensor.shape for name, tensor in DraftNetwork(config, max_position=1).state_dict().items()}
    weights = {name: _first(name, shape, generator) for name, shape in wanted.items()}
    weights |= _from_target(config, wanted, target)
    weights[ENDS[0]], weights[ENDS[1]] = ends[ENDS[0]], ends[ENDS[1]][vocabulary]
    if config.is_reduced:
        weights[DRAFT_TO_TARGET] = vocabulary - torch.arange(len(vocabulary))
    network = fit(config, weights, max_position=max_position, dtype=torch.float32, where="the drafter's first weights")
    return trainable(network)


def trainable(network: DraftNetwork) -> DraftNetwork:
    """All but the ends is trained."""
    network.train().requires_grad_(True)
    network.embed_tokens.requires_grad_(False)
    network.lm_head.requires_grad_(False)
    return network


def own_weights(network: DraftNetwork) -> dict[str, Tensor]:
    """What a drafter holds beside its target's ends."""
    return {name: tensor for name, tensor in network.state_dict().items() if name not in ENDS}


def save(network: DraftNetwork, raw: Mapping[str, Any], folder: Path, dtype: torch.dtype = torch.bfloat16) -> Path:
    """Write the folder that ``--speculative-config '{"method": "dspark", "model": FOLDER}'`` takes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    weights = {
        name: (tensor.to(dtype) if tensor.is_floating_point() else tensor).detach().cpu().contiguous()
        for name, tensor in own_weights(network).items()
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def _first(name: str, shape: Sequence[int], generator: torch.Generator) -> Tensor:
    if "norm" in name:
        return torch.ones(*shape)
    if name.startswith("confidence_head") or name == "markov_head.markov_w2.weight":
        return torch.zeros(*shape)
    return torch.randn(*shape, generator=generator) * _SMALL


def _from_target(
    config: DSparkConfig, wanted: Mapping[str, Sequence[int]], target: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The target's last layers under the drafter's names, as far as the shapes are equal or can be cut."""
    found: dict[str, Tensor] = {}
    first = config.num_target_layers - config.layers
    for layer in range(config.layers):
        ours, theirs = f"layers.{layer}.", f"model.layers.{first + layer}."
        part = {name.removeprefix(theirs): one.float() for name, one in target.items() if name.startswith(theirs)}
        found |= {ours + name: tensor for name, tensor in _narrowed(part, config.intermediate_size).items()}
        found |= {ours + name: tensor for name, tensor in _head_norms(part, config).items() if name not in part}
    if "model.norm.weight" in target:
        found["norm.weight"] = target["model.norm.weight"].float()
    found["hidden_norm.weight"] = found.get("layers.0.input_layernorm.weight", torch.ones(config.hidden_size))
    width = config.hidden_size
    found["fc.weight"] = torch.cat([torch.zeros(width, wanted["fc.weight"][1] - width), torch.eye(width)], dim=1)
    return {name: tensor for name, tensor in found.items() if tuple(tensor.shape) == tuple(wanted.get(name, ()))}


def _narrowed(part: Mapping[str, Tensor], size: int) -> dict[str, Tensor]:
    """A layer whose MLP keeps the ``size`` neurons of the largest weights."""
    names = {name: f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")}
    made = dict(part)
    if all(name in part for name in names.values()):
        gate, up, down = (part[names[name]] for name in ("gate", "up", "down"))
        weight = gate.norm(dim=1) * up.norm(dim=1) * down.norm(dim=0)
        kept = weight.topk(min(size, len(weight))).indices.sort().values
        made |= {names["gate"]: gate[kept], names["up"]: up[kept], names["down"]: down[:, kept]}
    return made


def _head_norms(part: Mapping[str, Tensor], config: DSparkConfig) -> dict[str, Tensor]:
    """Norms of queries and keys that leave them about as large as they are in a layer without such norms."""
    norm = part.get("input_layernorm.weight")
    made = {}
    for name in ("q", "k"):
        weight = part.get(f"self_attn.{name}_proj.weight")
        if weight is not None and norm is not None:
            size = (weight * norm).square().sum(dim=1).mean().sqrt()
            made[f"self_attn.{name}_norm.weight"] = size.expand(config.head_dim).clone()
    return made
