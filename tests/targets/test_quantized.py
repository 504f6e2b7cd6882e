"""Quantized targets: one answer as with plain weights, a checkpoint's codes are kept, refusals name the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from heptagram_backend.checkpoint import resolve
from heptagram_backend.errors import ReleaseError
from heptagram_backend.release import EngineOptions
from heptagram_backend.targets import load_target
from heptagram_backend.targets.invariance import row_invariance
from heptagram_backend.targets.packed_linear import PackedLinear
from heptagram_backend.targets.quantized import CodedLinear
from heptagram_backend.targets.transformers_target import TransformersTarget
from heptagram_kernels import cpu_vnni
from heptagram_kernels.codes import eight_bits
from tests.targets.tiny import FAMILIES, save_tiny, save_tiny_deepseek

needs_vnni = pytest.mark.skipif(cpu_vnni.fault() is not None, reason=str(cpu_vnni.fault()))
BITS = ("int8", "int4")


def _target(checkpoint: Path, quantization: str | None = None, **options: Any) -> TransformersTarget:
    defaults: dict[str, Any] = {"dtype": "bfloat16", "num_slots": 2, "max_model_len": 64}
    options = defaults | options
    return TransformersTarget(checkpoint, quantization=quantization, **options)


def _logits(target: TransformersTarget) -> Tensor:
    target.prefill(slot=0, start=0, token_ids=list(range(16)))
    return target.forward(torch.arange(8).unsqueeze(0), torch.tensor([16]), torch.tensor([0])).clone()


@needs_vnni
@pytest.mark.parametrize("quantization", BITS)
@pytest.mark.parametrize("family", FAMILIES)
def test_tiny_models_are_invariant(tmp_path: Path, family: str, quantization: str) -> None:
    checkpoint = save_tiny(tmp_path, family, max_position_embeddings=4096)
    target = _target(checkpoint, quantization, num_slots=8, max_model_len=600)
    report = row_invariance(target)
    assert report.passed, report
    assert target.paging.decoded


@pytest.mark.full
@pytest.mark.timeout(900)
@needs_vnni
@pytest.mark.parametrize("quantization", BITS)
def test_smollm2_is_invariant(quantization: str) -> None:
    target = _target(resolve("embedded:smollm2-135m-instruct"), quantization, num_slots=8, max_model_len=2048)
    report = row_invariance(target)
    assert report.passed, report


@needs_vnni
@pytest.mark.parametrize(("quantization", "near"), [("int8", 0.1), ("int4", 0.5)])
def test_logits_are_near_those_of_the_plain_weights(tmp_path: Path, quantization: str, near: float) -> None:
    checkpoint = save_tiny(tmp_path, "llama")
    plain, coded = (_logits(_target(checkpoint, name, dtype="float32")) for name in ("none", quantization))
    error = (coded - plain).square().mean().sqrt() / plain.std()
    assert 0 < error < near


def _save_compressed(folder: Path, source: Path, **changes: Any) -> dict[str, Tensor]:
    """``source`` as vLLM's tools write it, int8 but for the head, with codes that no rounding of ours would give."""
    weights = load_file(source / "model.safetensors")
    for name in [name for name in weights if name.endswith("_proj.weight")]:
        found = eight_bits(weights[name])
        weights[name] = torch.where(found.codes == 127, -128, found.codes - found.codes % 2).to(torch.int8)
        weights[f"{name}_scale"] = found.scales.bfloat16()
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    eight = {"num_bits": 8, "type": "int", "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": {**eight, "strategy": "channel", "dynamic": False},
        "input_activations": {**eight, "strategy": "token", "dynamic": True},
    }
    declared = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }
    config = json.loads((source / "config.json").read_text())
    for path, value in changes.items():
        *parents, last = path.split("__")
        place: Any = declared
        for parent in parents:
            place = place[parent]
        place[last] = value
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": declared}))
    return weights


@needs_vnni
@pytest.mark.parametrize("family", FAMILIES)
def test_a_compressed_checkpoint_keeps_its_codes(tmp_path: Path, family: str) -> None:
    source = save_tiny(tmp_path / "plain", family)
    weights = _save_compressed(tmp_path / "coded", source)
    target = _target(tmp_path / "coded", dtype="float32")
    layers = dict(target._model.named_modules())
    coded = [name for name, layer in layers.items() if isinstance(layer, CodedLinear)]
    assert len(coded) == 14
    assert isinstance(target._model.lm_head, PackedLinear)  # it is not among the quantized ones
    for name in ("model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"):
        weight = weights[f"{name}.weight"].float() * weights[f"{name}.weight_scale"].float()
        bias = weights.get(f"{name}.bias", torch.zeros(1)).float()
        # One 1 in a row: its code is 127 and its scale 1 / 127, so the product is a column of the weight.
        columns = layers[name](torch.eye(weight.shape[1])) - bias
        torch.testing.assert_close(columns.t(), weight, rtol=1e-5, atol=1e-5)
    assert _logits(target).isfinite().all()
    assert row_invariance(target).passed


def test_what_a_checkpoint_may_not_say_is_named(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "plain", "llama")
    for number, (change, message) in enumerate(
        {
            ("format", "pack-quantized"): "quantization_config: compressed-tensors pack-quantized; this runner takes",
            ("quant_method", "gptq"): "quantization_config: gptq int-quantized; this runner takes compressed-tensors",
            ("config_groups__group_0__weights__num_bits", 4): "group_0.weights.num_bits: 4; this runner takes 8",
            ("config_groups__group_0__weights__symmetric", False): "weights.symmetric: False; this runner takes True",
            ("config_groups__group_0__weights__strategy", "group"): "strategy: 'group'; this runner takes channel or",
            ("config_groups__group_0__input_activations", None): "input_activations.num_bits: None; this runner takes",
            ("config_groups__group_0__input_activations__dynamic", False): "input_activations.dynamic: False; this",
        }.items()
    ):
        folder = tmp_path / str(number)
        _save_compressed(folder, source, **dict([change]))
        with pytest.raises(ReleaseError, match="checkpoint: quantization_config") as caught:
            _target(folder)
        assert message in str(caught.value)


@pytest.mark.parametrize("asked", ["none", "int4"])
def test_another_quantization_than_the_checkpoints_is_refused(tmp_path: Path, asked: str) -> None:
    _save_compressed(tmp_path / "coded", save_tiny(tmp_path / "plain", "llama"))
    with pytest.raises(ReleaseError, match=f"engine.quantization: {asked}; the checkpoint's weights are int8: leave"):
        _target(tmp_path / "coded", asked)


def test_a_machine_that_cannot_is_told_the_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_vnni, "fault", lambda: "the processor has no avx512vnni")
    with pytest.raises(
        ReleaseError, match=r"engine.quantization: int8 on the CPU: the processor has no avx512vnni; or"
    ):
        _target(save_tiny(tmp_path, "llama"), "int8")


@needs_vnni
def test_a_checkpoint_without_a_fitting_layer_is_refused(tmp_path: Path) -> None:
    checkpoint = save_tiny(tmp_path, "llama", hidden_size=48, intermediate_size=80, head_dim=12)
    with pytest.raises(ReleaseError, match=r"engine.quantization: int8: no linear layer .* multiple of 32 inputs"):
        _target(checkpoint, "int8")


def test_an_unknown_quantization_is_refused() -> None:
    with pytest.raises(ReleaseError, match=r"engine.quantization: 'fp8'; choose none, int8, int4"):
        EngineOptions(quantization="fp8")


def test_a_target_that_quantizes_nothing_says_so(tmp_path: Path) -> None:
    checkpoint = save_tiny_deepseek(tmp_path)
    with pytest.raises(ReleaseError, match=r"engine.quantization: int8; the deepseek_v4 target has plain weights only"):
        load_target(EngineOptions(quantization="int8", max_model_len=512), checkpoint)
