"""One answer on DeepSeek V4: no drafter, no draft count and no company changes a token, with a grammar or without.

As in tests/engine/test_one_answer.py, on a smaller grid: the expected answers are those of a loop that knows nothing of
the engine. Answers run over many compressed windows of 4 and 20 tokens and out of the sliding window of 12.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.engines.parts import Parts
from heptagram_backend.generation import DraftSource, GenerationRequest, OutputSpec
from heptagram_backend.targets.deepseek_v4 import DeepSeekV4Target
from tests.engine.harness import EOS, Result, drive, masked_argmax, tiny_encode, tiny_parts, tiny_vocabulary
from tests.targets.tiny import save_tiny_deepseek

SCHEMA = (
    '{"type":"object","properties":{"name":{"enum":["arguments","the tool"]},"the ":{"type":"array","items":'
    '{"type":"integer","minimum":-99,"maximum":99},"minItems":2,"maxItems":4}},"required":["name","the "],'
    '"additionalProperties":false}'
)
TEXTS = ["tell the tool name", "x", "the " * 40, "0 1 2 3 4 5"]


def _requests() -> list[GenerationRequest]:
    """Two constrained requests and two free ones, in turn."""
    return [
        GenerationRequest(
            tuple(tiny_encode(text)),
            OutputSpec("chatml_json"),
            "tiny",
            max_tokens=32 + 6 * place,
            constraint=ConstraintSpec("json_schema", SCHEMA) if place % 2 else None,
            ignore_eos=not place % 2,
        )
        for place, text in enumerate(TEXTS)
    ]


def _hostile(tokens: Sequence[int], limit: int) -> list[int]:
    """Stop tokens, control tokens, ids of the padding, repeats."""
    choices = (EOS, EOS - 1, 280, tokens[-1], (tokens[-1] * 31 + len(tokens)) % 256, 34)
    return [choices[(len(tokens) + step) % len(choices)] for step in range(limit)]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> DeepSeekV4Target:
    folder = save_tiny_deepseek(tmp_path_factory.mktemp("tiny"), vocab_size=288, initializer_range=0.4)
    return DeepSeekV4Target(folder, dtype="float32", num_slots=4, max_model_len=256)


@pytest.fixture(scope="module")
def plain(target: DeepSeekV4Target) -> list[Result]:
    return [masked_argmax(target, request, tiny_vocabulary()) for request in _requests()]


@pytest.fixture(scope="module")
def parts(target: DeepSeekV4Target, plain: list[Result]) -> Iterator[Parts]:
    wholes = [(*request.prompt_ids, *answer.tokens) for request, answer in zip(_requests(), plain, strict=True)]

    def perfect(tokens: Sequence[int], limit: int) -> list[int]:
        """What the answer goes on with, so that every draft is accepted."""
        [rest] = [whole[len(tokens) :] for whole in wholes if whole[: len(tokens)] == tuple(tokens)]
        return list(rest[:limit])

    made = tiny_parts(target, scripts={"scripted": _hostile, "perfect": perfect})
    yield made
    made.grammars.close()


@pytest.mark.parametrize(
    ("drafts", "count"),
    [("none", 0), ("scripted", 7), ("perfect", 7), ("perfect", 4), ("auto", 7)],
)
def test_no_drafts_and_no_company_change_a_token(
    parts: Parts, plain: list[Result], drafts: DraftSource, count: int
) -> None:
    requests = [replace(request, drafts=drafts, num_speculative_tokens=count) for request in _requests()]
    for size in range(1, 5):
        chosen = [(count + size + step) % 4 for step in range(size)]
        slots = [(3 * size + step) % 4 for step in range(size)]
        assert drive(parts, [requests[place] for place in chosen], slots) == [plain[place] for place in chosen], size
    assert parts.grammars.live == 0


def test_the_grid_says_something(plain: list[Result]) -> None:
    """Answers differ, are no repetition of one token, and the constrained ones end by themselves."""
    assert len({result.tokens for result in plain}) == len(plain)
    assert all(len(set(result.tokens)) > 5 for result in plain)
    assert {result.reason for result in plain[1::2]} == {"stop"}
