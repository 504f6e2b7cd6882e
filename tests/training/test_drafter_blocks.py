"""Blocks under one mask are the blocks that the engine's drafter makes one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from heptagram_backend.drafts.dspark.config import DSparkConfig
from heptagram_backend.drafts.dspark.loading import fit
from heptagram_backend.drafts.dspark.network import DraftNetwork, OwnContexts
from heptagram_backend.drafts.dspark.walk import walk
from heptagram_backend.training.drafter_blocks import cut, drawn_anchors, every_anchor, hidden_states, taught
from heptagram_backend.training.drafter_data import Answer
from tests.drafts.writing import GEMMA4, QWEN3, random_weights

KINDS: dict[str, dict[str, Any]] = {
    "vanilla": QWEN3,
    "gated, reduced": QWEN3 | {"markov_head_type": "gated", "draft_vocab_size": 150},
    "rnn": QWEN3 | {"markov_head_type": "rnn", "block_size": 4},
    "plain": QWEN3 | {"markov_rank": 0, "enable_confidence_head": False, "confidence_head_with_markov": False},
    "gemma4": GEMMA4,
}


def _network(kind: str) -> DraftNetwork:
    raw = KINDS[kind]
    config = DSparkConfig.parse(raw)
    return fit(config, random_weights(raw), max_position=128, dtype=torch.float32, where=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_under_one_mask_are_those_of_each_alone(answers: list[Answer], kind: str) -> None:
    network, answer = _network(kind), answers[0]
    positions = every_anchor(answer)[::5]
    blocks = cut(network, answer, positions)
    with torch.inference_mode():
        together = hidden_states(network, answer, blocks)
        for place, position in enumerate(positions.tolist()):
            context = network.context(answer.hidden[:position].float(), torch.arange(position))
            own = [OwnContexts([pair]) for pair in context]
            alone = network(answer.tokens[position : position + 1], positions[place : place + 1], own)
            torch.testing.assert_close(together[place : place + 1], alone, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_taught_logits_are_those_of_a_walk_along_the_answer(answers: list[Answer], kind: str) -> None:
    network, answer = _network(kind), answers[1]
    size = network.config.block_size
    positions = every_anchor(answer)[:-size]
    blocks = cut(network, answer, positions)
    assert bool(blocks.counts.all())
    following = answer.tokens[positions.unsqueeze(1) + 1 + torch.arange(size)]
    with torch.inference_mode():
        hidden = hidden_states(network, answer, blocks)
        logits, confidence = taught(network, hidden, blocks.previous)
        walked = walk(network, hidden, blocks.anchors, given=following)
    torch.testing.assert_close(logits, walked.logits, atol=1e-4, rtol=1e-4)
    if walked.confidence is None:
        assert confidence is None
    else:
        torch.testing.assert_close(confidence, walked.confidence, atol=1e-5, rtol=1e-4)


def test_labels_are_what_follows_and_the_thoughts_are_those_of_their_places(answers: list[Answer]) -> None:
    network, answer = _network("vanilla"), answers[2]
    first, last = answer.prompt - 1, len(answer.tokens) - 2
    blocks = cut(network, answer, torch.tensor([first, last]))
    tokens = answer.tokens.tolist()
    assert blocks.labels[0].tolist() == tokens[first + 1 : first + 8]
    assert blocks.previous[0].tolist() == tokens[first : first + 7]
    assert blocks.counts.tolist() == [[True] * 7, [True] + [False] * 6]
    assert torch.equal(blocks.thought.ids[0], answer.top_ids[:7])
    torch.testing.assert_close(blocks.thought.chances[1, 0], answer.top_logprobs[-1].exp())


def test_the_text_of_a_prompt_counts_as_certain(answers: list[Answer]) -> None:
    network, answer = _network("vanilla"), answers[2]
    start = answer.prompt - 4
    blocks = cut(network, answer, torch.tensor([start]))
    assert blocks.labels[0].tolist() == answer.tokens[start + 1 : start + 8].tolist()
    assert blocks.thought.chances[0, :3].sum(-1).tolist() == [1, 1, 1]
    assert blocks.thought.ids[0, :3, 0].tolist() == blocks.labels[0, :3].tolist()
    assert torch.equal(blocks.thought.ids[0, 3], answer.top_ids[0])


def test_anchors_are_drawn_from_answer_and_prompt(answers: list[Answer]) -> None:
    answer = answers[0]
    drawn = drawn_anchors(answer, torch.Generator().manual_seed(1), answers=10, prompts=3)
    assert len(set(drawn.tolist())) == 13
    assert int((drawn < answer.prompt - 1).sum()) == 3
    assert int(drawn.min()) >= 1
    assert int(drawn.max()) <= len(answer.tokens) - 2
    every = drawn_anchors(answer, torch.Generator(), answers=10**6, prompts=0)
    assert torch.equal(every, every_anchor(answer))
