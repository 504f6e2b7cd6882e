"""DeepSpec's checkpoint layout: what loads, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from heptagram_backend.drafts.dspark.config import DSparkConfig
from heptagram_backend.drafts.dspark.loading import load_network, target_ends
from heptagram_backend.drafts.dspark.network import DraftNetwork
from heptagram_backend.errors import ReleaseError
from tests.drafts.writing import GEMMA4, QWEN3, random_weights, save_drafter
from tests.engine.harness import tiny_checkpoint


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("target"))


def _load(folder: Path, target: Path) -> DraftNetwork:
    return load_network(folder, target=target, max_position=64, dtype=torch.float32)


@pytest.mark.parametrize("kind", ["vanilla", "gated", "rnn"])
@pytest.mark.parametrize("family", [QWEN3, GEMMA4], ids=["qwen3", "gemma4"])
def test_every_weight_is_where_its_name_says(tmp_path: Path, target: Path, family: dict[str, Any], kind: str) -> None:
    raw = family | {"markov_head_type": kind}
    weights = random_weights(raw)
    loaded = _load(save_drafter(tmp_path, weights, **raw), target).state_dict()
    assert loaded.keys() == weights.keys()
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)


def test_the_names_are_those_of_deepspec(tmp_path: Path, target: Path) -> None:
    names = set(_load(save_drafter(tmp_path), target).state_dict())
    attention = {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"}
    layer = {f"self_attn.{part}" for part in attention} | {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}
    layer |= {"input_layernorm", "post_attention_layernorm"}
    parts = {"embed_tokens", "lm_head", "fc", "hidden_norm", "norm", "markov_head.markov_w1", "markov_head.markov_w2"}
    parts |= {f"layers.{place}.{part}" for place in range(2) for part in layer} | {"confidence_head.proj"}
    assert names == {f"{part}.weight" for part in parts} | {"confidence_head.proj.bias"}


def test_a_reduced_vocabulary_takes_its_rows_of_the_targets_head(tmp_path: Path, target: Path) -> None:
    raw = QWEN3 | {"draft_vocab_size": 100, "markov_head_type": "gated"}
    weights = random_weights(raw)
    for name in ("embed_tokens.weight", "lm_head.weight"):
        del weights[name]
    network = _load(save_drafter(tmp_path, weights, **raw), target)
    proposed = torch.arange(100) + weights["d2t"]
    assert torch.equal(network.vocabulary, proposed)
    assert torch.equal(network.lm_head.weight, target_ends(target)["lm_head.weight"][proposed])
    assert network.draft_ids[proposed].tolist() == list(range(100))
    assert (network.draft_ids == 100).sum() == 188
    assert _load(save_drafter(tmp_path / "whole"), target).draft_ids.tolist() == list(range(288))


@pytest.mark.parametrize("offsets", [[0] * 99, [0.0] * 100, [-1] + [0] * 99, [1] + [0] * 99, [300] + [0] * 99])
def test_a_draft_vocabulary_that_is_none_is_refused(tmp_path: Path, target: Path, offsets: list[float]) -> None:
    raw = QWEN3 | {"draft_vocab_size": 100}
    weights = random_weights(raw) | {"d2t": torch.tensor(offsets)}
    with pytest.raises(ReleaseError, match=r"d2t must hold int64 \[100\]"):
        _load(save_drafter(tmp_path, weights, **raw), target)


def test_ends_that_the_drafter_lacks_are_the_targets(tmp_path: Path, target: Path) -> None:
    weights = random_weights(QWEN3)
    borrowed = {name: weights.pop(name) for name in ("embed_tokens.weight", "lm_head.weight")}
    network = _load(save_drafter(tmp_path, weights), target)
    for name, own in borrowed.items():
        assert network.state_dict()[name].shape == own.shape
        assert not torch.equal(network.state_dict()[name], own)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"architectures": ["Qwen3ForCausalLM"]}, "must name one of Qwen3DSparkModel, Gemma4DSparkModel"),
        ({"architectures": ["DeepseekV4ForCausalLM"], "dspark_block_size": 5}, "DeepSeek V4's drafters (mtp.*), which"),
        ({"block_size": None}, "block_size is missing"),
        ({"block_size": 0}, "block_size is 0, but must be a whole number at least 1"),
        ({"block_size": "7"}, "block_size is '7'"),
        ({"mask_token_id": 288}, "mask_token_id is 288, but must be a whole number from 0 to 287"),
        ({"target_layer_ids": [0, 1]}, "must rise within -1"),
        ({"target_layer_ids": [0, -1]}, "must rise within -1"),
        ({"target_layer_ids": []}, "must rise within -1"),
        ({"markov_head_type": "lstm"}, "markov_head_type is 'lstm'; known are vanilla, gated, rnn"),
        ({"markov_rank": 0}, "confidence_head_with_markov is true, but markov_rank is 0"),
        ({"enable_confidence_head": "yes"}, "enable_confidence_head is 'yes', but must be true or false"),
        ({"num_key_value_heads": 3}, "no multiple of the 3 key/value heads"),
        ({"layer_types": ["sliding_attention"]}, "layer_types must all be full_attention"),
        (GEMMA4 | {"enable_moe_block": True}, "enable_moe_block"),
        (GEMMA4 | {"final_logit_softcapping": 0}, "final_logit_softcapping is 0, but must be positive"),
    ],
)
def test_a_config_that_is_none_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ReleaseError) as caught:
        DSparkConfig.parse(QWEN3 | changes)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden_size": 32}, "made for a target with hidden_size 32, but the checkpoint's is 64"),
        ({"vocab_size": 320}, "made for a target with vocab_size 320, but the checkpoint's is 288"),
        ({"num_target_layers": 36}, "made for a target with num_hidden_layers 36, but the checkpoint's is 2"),
    ],
)
def test_the_drafter_of_another_target_is_refused(
    tmp_path: Path, target: Path, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(ReleaseError) as caught:
        _load(save_drafter(tmp_path, **changes), target)
    assert says in str(caught.value)


def test_weights_that_do_not_fit_are_named(tmp_path: Path, target: Path) -> None:
    weights = random_weights(QWEN3)
    cases = {
        "lacks fc.weight": {name: tensor for name, tensor in weights.items() if name != "fc.weight"},
        "has what no DSpark drafter of this config has: mtp.0.eh_proj.weight": weights
        | {"mtp.0.eh_proj.weight": torch.zeros(2)},
        "fc.weight [64, 64] instead of [64, 128]": weights | {"fc.weight": torch.zeros(64, 64)},
        "is quantized, which this drafter cannot run: fc.weight": weights
        | {"fc.weight": torch.zeros((64, 128), dtype=torch.int8)},
    }
    for place, (says, wrong) in enumerate(cases.items()):
        with pytest.raises(ReleaseError) as caught:
            _load(save_drafter(tmp_path / str(place), wrong), target)
        assert says in str(caught.value)


def test_a_folder_without_weights_or_config_is_refused(tmp_path: Path, target: Path) -> None:
    with pytest.raises(ReleaseError, match=r"config\.json cannot be read"):
        _load(tmp_path, target)
    (tmp_path / "config.json").write_text(json.dumps(QWEN3))
    with pytest.raises(ReleaseError, match=r"holds no \*\.safetensors"):
        _load(tmp_path, target)
    (tmp_path / "model.safetensors").write_bytes(b"no safetensors")
    with pytest.raises(ReleaseError, match=r"model\.safetensors cannot be read"):
        _load(tmp_path, target)
