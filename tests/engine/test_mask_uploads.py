"""What masks cost on the way to the device: nothing for ordinary requests, each distinct row once for the others."""

from __future__ import annotations

import numpy as np
import pytest

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.engine import EngineLimits
from heptagram_backend.engines.parts import Parts, assemble, make_parts
from heptagram_backend.errors import ReleaseError
from heptagram_backend.generation import GenerationRequest, OutputSpec
from heptagram_backend.grammars import UnavailableFactory
from heptagram_backend.masks import words_for
from heptagram_backend.release import EngineOptions
from heptagram_backend.targets.scripted import ScriptedTarget
from heptagram_backend.targets.transformers_target import TransformersTarget
from tests.engine.harness import (
    EOS,
    Collector,
    drive,
    tiny_checkpoint,
    tiny_encode,
    tiny_factory,
    tiny_parts,
    tiny_vocabulary,
)
from tests.engine.test_one_answer import SCHEMA

WIDTH = 288
OUTPUT = OutputSpec("chatml_json")
FREE = [GenerationRequest(tuple(tiny_encode(text)), OUTPUT, "tiny", 30) for text in ("the tool", "hello", "name")]
CALL = GenerationRequest(
    tuple(tiny_encode("tell the tool name")), OUTPUT, "tiny", 60, constraint=ConstraintSpec("json_schema", SCHEMA)
)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    folder = tiny_checkpoint(tmp_path_factory.mktemp("tiny"))
    return tiny_parts(TransformersTarget(folder, dtype="float32", num_slots=4, max_model_len=256))


def test_an_ordinary_batch_uploads_nothing_and_a_call_each_distinct_row_once(parts: Parts) -> None:
    row_bytes = 4 * words_for(WIDTH)
    drive(parts, FREE)
    assert parts.masks.uploaded_bytes == 0
    drive(parts, [CALL, *FREE])
    uploaded = parts.masks.uploaded_bytes
    rows = _rows(parts)
    assert uploaded == rows * row_bytes, "a row was uploaded that lay there already"
    drive(parts, [*FREE, CALL])
    assert parts.masks.uploaded_bytes == uploaded, "the same call again uploads nothing"


def test_the_engine_counts_masked_rows_and_those_that_lay_there() -> None:
    target = ScriptedTarget(lambda _: EOS, vocab_size=WIDTH, num_slots=4, max_model_len=256)
    engine = assemble(tiny_parts(target), EngineLimits("1", 8, 60_000, "tiny"))
    for _ in range(2):
        sink = Collector()
        engine.submit(CALL, sink)
        assert sink.done.wait(20)
    engine.close()
    seen = engine.snapshot()
    assert seen.masked_rows > seen.mask_hits > seen.masked_rows / 2
    assert seen.mask_bytes == (seen.masked_rows - seen.mask_hits) * 4 * words_for(WIDTH)


def test_masks_of_another_width_are_refused_at_load() -> None:
    target = ScriptedTarget(lambda _: EOS, vocab_size=WIDTH, num_slots=1, max_model_len=64)
    options = EngineOptions(mask_pool_rows=128)
    with pytest.raises(ReleaseError, match="masks are for 320 tokens, but the target's logits are 288 wide"):
        make_parts(target=target, vocabulary=tiny_vocabulary(), factory=tiny_factory(320), options=options)


def test_a_vocabulary_wider_than_the_logits_is_refused_at_load() -> None:
    width = len(tiny_vocabulary().token_bytes) - 1
    target = ScriptedTarget(lambda _: 0, vocab_size=width, num_slots=1, max_model_len=64)
    options = EngineOptions(mask_pool_rows=128)
    with pytest.raises(ReleaseError, match=f"but the target's logits are {width} wide"):
        make_parts(target=target, vocabulary=tiny_vocabulary(), factory=UnavailableFactory(), options=options)


def _rows(parts: Parts) -> int:
    """Distinct rows in the pool beside row 0."""
    pool = parts.masks.pool.numpy()[1:]
    used = pool[pool.any(axis=1)]
    assert len(np.unique(used, axis=0)) == len(used), "a row lies in the pool twice"
    return len(used)
