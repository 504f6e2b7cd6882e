"""Learning on a tiny model: packed as apart, losses fall, a run goes on where it was, merged is what was trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM

from heptagram_backend.adapter import AdapterConfig
from heptagram_backend.errors import ReleaseError
from heptagram_backend.formats import load_format
from heptagram_backend.merge import merge, weights_digest
from heptagram_backend.targets.loading import load_model
from heptagram_backend.training.encode import Encoded, Encoder
from heptagram_backend.training.example import Example
from heptagram_backend.training.lora import Adapted
from heptagram_backend.training.pack import pack
from heptagram_backend.training.prompts import Prompts
from heptagram_backend.training.run import save
from heptagram_backend.training.train import STATE_FILE, Plan, Progress, Trainer
from tests.formats import smollm2
from tests.targets.tiny import save_tiny

VOCABULARY = 49_152
SOME = [
    Encoded((5, 6, 7), (8, 9)),
    Encoded((5, 6, 7, 10), (8,)),
    Encoded((5, 11), (12, 13, 14)),
    Encoded((5, 6), (7, 9)),
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_tiny(
        tmp_path_factory.mktemp("base"), "llama", vocab_size=VOCABULARY, hidden_size=32, initializer_range=0.05
    )
    (folder / "tokenizer.json").write_text('{"added_tokens": [], "model": {"vocab": {}}}')
    return folder


def adapted(checkpoint: Path, rows: tuple[int, ...] = (4,)) -> Adapted:
    model = load_model(checkpoint, dtype="float32", attn_implementation="sdpa")
    return Adapted(model, rank=8, scale=2.0, rows=rows, seed=0)


def trainer(made: Adapted, folder: Path, **plan: Any) -> Trainer:
    encoder = Encoder(load_format("chatml_dsml"), smollm2.dsml_tokenizer())
    said = [Example("chat", {"messages": [{"role": "user", "content": f"Hi {n}"}]}, "Hello there") for n in range(9)]
    prompts = Prompts(0, said, bfcl=False)
    return Trainer(
        made, encoder, prompts, Plan(**{"steps": 12, "longest": 350, "rate": 1e-2, "warmup": 2, **plan}), folder
    )


def test_packed_examples_are_computed_as_if_apart(checkpoint: Path) -> None:
    made = adapted(checkpoint)
    packed = pack(SOME)
    assert len(packed.ids) < sum(len(each.ids) for each in SOME)
    logits = made.logits(made.hidden(packed.ids, packed.positions, packed.mask)[packed.rows])
    for number, each in enumerate(SOME):
        ids = torch.tensor(each.ids)
        with torch.no_grad():
            apart = made.model(input_ids=ids[None]).logits[0, len(each.prompt) - 1 : -1]
        mine = packed.examples == number
        assert packed.labels[mine].tolist() == list(each.answer)
        torch.testing.assert_close(logits[mine], apart, rtol=1e-4, atol=1e-5)


def test_packed_gradients_are_those_of_the_examples_apart(checkpoint: Path) -> None:
    gradients = []
    for groups in ([SOME], [[each] for each in SOME]):
        made = adapted(checkpoint)
        for layer in made.layers.values():
            layer.up.data.normal_(std=0.02, generator=torch.Generator().manual_seed(1))
        for group in groups:
            packed = pack(group)
            logits = made.logits(made.hidden(packed.ids, packed.positions, packed.mask)[packed.rows])
            functional.cross_entropy(logits, packed.labels, reduction="sum").backward()  # type: ignore[no-untyped-call]
        gradients.append({name: parameter.grad for name, parameter in made.parameters.items()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-3, atol=1e-5, msg=name)


def test_a_new_adapter_changes_nothing(checkpoint: Path) -> None:
    made = adapted(checkpoint)
    ids = torch.arange(20, 40)
    mask = torch.ones(20, 20, dtype=torch.bool).tril()
    with torch.no_grad():
        before = load_model(checkpoint, dtype="float32")(input_ids=ids[None]).logits[0]
        torch.testing.assert_close(made.logits(made.hidden(ids, torch.arange(20), mask)), before)


def test_a_step_whose_examples_are_all_too_long_draws_others(checkpoint: Path, tmp_path: Path) -> None:
    told: list[Progress] = []
    trainer(adapted(checkpoint), tmp_path, steps=2, longest=100).run(told.append)  # chat alone is that short
    assert all(each.tokens for each in told)
    with pytest.raises(ReleaseError, match="longest: no example"):
        trainer(adapted(checkpoint), tmp_path, steps=1, longest=5).run(told.append)


def test_losses_fall(checkpoint: Path, tmp_path: Path) -> None:
    told: list[Progress] = []
    trainer(adapted(checkpoint), tmp_path, steps=12).run(told.append)
    first, last = (sum(each.loss for each in part) / 3 for part in (told[:3], told[-3:]))
    assert last < 0.85 * first
    assert [each.step for each in told] == list(range(1, 13))


def test_a_stopped_run_goes_on_bit_by_bit(checkpoint: Path, tmp_path: Path) -> None:
    whole, stopped = adapted(checkpoint), adapted(checkpoint)
    for name in ("whole", "stopped"):
        (tmp_path / name).mkdir()
    trainer(whole, tmp_path / "whole", steps=6).run(lambda _: None)
    trainer(stopped, tmp_path / "stopped", steps=6).run(lambda _: None, until=3)
    again = adapted(checkpoint)
    later = trainer(again, tmp_path / "stopped", steps=6)
    assert later.resume()
    assert later.step == 3
    later.run(lambda _: None)
    for name, parameter in whole.parameters.items():
        assert parameter.equal(again.parameters[name]), name
    assert not trainer(again, tmp_path).resume()
    assert not (tmp_path / "whole" / f"{STATE_FILE}.part").exists()


def test_the_rate_can_be_prolonged_or_cut() -> None:
    short, long = Plan(steps=30, warmup=10), Plan(steps=60, warmup=10)
    assert [short.rate_at(step) for step in range(20)] == [long.rate_at(step) for step in range(20)]
    assert short.rate_at(29) < short.rate_at(25) < short.rate
    assert short.rate_at(0) < short.rate_at(5) < short.rate_at(15) == short.rate


def test_merged_weights_compute_what_was_trained(checkpoint: Path, tmp_path: Path) -> None:
    made = adapted(checkpoint)
    trainer(made, tmp_path, steps=3).run(lambda _: None)
    adapter, folder = tmp_path / "adapter", tmp_path / "merged"
    adapter.mkdir()
    folder.mkdir()
    save(adapter, made, AdapterConfig(weights_digest(checkpoint), "chatml_dsml", 8, 2.0, {}, (4,)))
    merge(checkpoint, adapter, folder)
    ids = torch.tensor([4, 20, 30, 4, 50, 60, 70, 4])
    mask = torch.ones(8, 8, dtype=torch.bool).tril()
    with torch.no_grad():
        for parameter in made.parameters.values():
            parameter.copy_(parameter.bfloat16().float())  # as they are stored
        trained = made.logits(made.hidden(ids, torch.arange(8), mask))
        merged = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(input_ids=ids[None]).logits[0]
        before = load_model(checkpoint, dtype="float32")(input_ids=ids[None]).logits[0]
    torch.testing.assert_close(trained, merged, rtol=1e-4, atol=1e-5)
    assert (trained - before).abs().max() > 0.1
    assert json.loads((adapter / "adapter.json").read_text())["rank"] == 8
