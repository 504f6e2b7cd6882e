"""One short run of each suite on the embedded model: the arms agree on the tokens, and the tables hold them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bench_engine import BenchEngine
from benchmarks.drafters import drafters
from benchmarks.sampling import sampling
from benchmarks.steps import batches, masks, strict_against_ordinary
from benchmarks.workload import by_kind, prepared
from heptagram_backend.generation import GenerationRequest
from tests.drafts.writing import save_drafter

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def engine() -> Iterator[BenchEngine]:
    engine = BenchEngine()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def requests(engine: BenchEngine) -> list[GenerationRequest]:
    return prepared(engine.preprocessor, 8, max_tokens=24)


def test_strict_and_ordinary_emit_the_same(engine: BenchEngine, requests: list[GenerationRequest]) -> None:
    suite = strict_against_ordinary(engine, requests[:1], 1)
    generated = {run[0]["generated"] for run in suite.data["runs"].values()}
    assert len(generated) == 1
    assert suite.data["ratios"]["strict, K7 over strict, K0"][1] > 1.5


def test_forced_drafts_take_fewer_steps(engine: BenchEngine, requests: list[GenerationRequest]) -> None:
    suite = drafters(engine, None, {"BFCL": requests[:1]}, 1)
    runs = {arm: found[0] for arm, found in suite.data["runs"]["BFCL"].items()}
    assert runs["none"]["tokens_per_step"] == 1
    assert runs["none"]["accepted_1"] == 0
    assert runs["prompt_lookup,grammar_forced"]["tokens_per_step"] >= runs["grammar_forced"]["tokens_per_step"] > 1
    assert len({run["generated"] for run in runs.values()}) == 1
    assert "dspark" not in suite.text


def test_a_drafter_is_measured_where_there_is_one(engine: BenchEngine, tmp_path: Path) -> None:
    """A random one: nothing is gained, and the tokens are the same."""
    sizes: dict[str, Any] = {"vocab_size": 49_152, "hidden_size": 576, "num_target_layers": 30}
    drafting = BenchEngine(drafter=save_drafter(tmp_path, without_ends=True, target_layer_ids=[1, 27], **sizes))
    try:
        work = {kind: found[:1] for kind, found in by_kind(engine.preprocessor, 1, max_tokens=16).items()}
        runs = drafters(engine, drafting, work, 1).data["runs"]
    finally:
        drafting.close()
    assert list(runs) == ["BFCL", "MCP", "chat", "code"]
    assert set(runs["chat"]) == {"none", "prompt_lookup", "dspark", "prompt_lookup,dspark"}
    for kind in runs.values():
        assert len({run[0]["generated"] for run in kind.values()}) == 1
    assert runs["BFCL"]["dspark,grammar_forced"][0]["tokens_per_step"] > 1


def test_sampling_is_measured_in_the_step_and_alone(engine: BenchEngine, requests: list[GenerationRequest]) -> None:
    suite = sampling(engine, requests[:2], 1)
    runs = suite.data["runs"]
    assert runs["greedy"][0]["generated"] == runs["greedy, no sampler in the step"][0]["generated"]
    assert runs["temperature 1"][0]["sampler_ms_per_step"] > 10 * runs["greedy"][0]["sampler_ms_per_step"]
    assert set(suite.data["one_row_us"]) == {49_152, 129_280}


def test_batches_and_masks(engine: BenchEngine, requests: list[GenerationRequest]) -> None:
    assert "batch 8, strict, K7 over batch 8, strict, K0" in batches(engine, requests, 1).text
    assert masks(engine, requests[:1]).data["again"]["mask_bytes_per_step"] == 0
