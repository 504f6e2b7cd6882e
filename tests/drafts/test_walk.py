"""The left-to-right part: greedy, drawn, along given tokens, under a mask; and drafters one after the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from heptagram_backend.drafts import draft_policy
from heptagram_backend.drafts.base import InOrder, permits
from heptagram_backend.drafts.dspark.config import DSparkConfig
from heptagram_backend.drafts.dspark.drafter import DSparkDrafter
from heptagram_backend.drafts.dspark.network import DraftNetwork
from heptagram_backend.drafts.dspark.walk import walk
from heptagram_backend.drafts.prompt_lookup import PromptLookup
from heptagram_backend.drafts.scripted import Scripted
from tests.drafts.test_engine import Bench
from tests.drafts.writing import QWEN3, random_weights
from tests.engine.harness import tiny_encode


def _network(kind: str) -> DraftNetwork:
    raw = QWEN3 | {"markov_head_type": kind, "vocab_size": 5, "mask_token_id": 4, "block_size": 3}
    network = DraftNetwork(DSparkConfig.parse(raw), max_position=16)
    network.load_state_dict(random_weights(raw))
    return network.eval().requires_grad_(False)


@pytest.mark.parametrize("kind", ["vanilla", "gated", "rnn"])
def test_drawn_blocks_have_the_distribution_of_their_logits(kind: str) -> None:
    """Each block's tokens, drawn 20,000 times, against the product of the conditional chances of the same walk."""
    network, draws = _network(kind), 20_000
    one = torch.randn((1, 3, 64), generator=torch.Generator().manual_seed(3)) * 0.5
    anchors = torch.zeros(draws, dtype=torch.int64)
    generator = torch.Generator().manual_seed(7)
    drawn = walk(network, one.expand(draws, -1, -1), anchors, temperature=1.3, generator=generator).tokens
    counts = torch.bincount(drawn[:, 0] * 25 + drawn[:, 1] * 5 + drawn[:, 2], minlength=125) / draws
    every = torch.cartesian_prod(*[torch.arange(5)] * 3)
    forced = walk(network, one.expand(125, -1, -1), anchors[:125], given=every)
    chances = torch.softmax(forced.logits / 1.3, dim=-1).gather(2, every.unsqueeze(-1)).prod(dim=1).squeeze(-1)
    assert float(chances.sum()) == pytest.approx(1, abs=1e-4)
    assert float((counts - chances).abs().max()) < 5 * (0.25 / draws) ** 0.5


def test_the_first_free_token_obeys_the_mask_and_the_others_follow_it() -> None:
    network = _network("vanilla")
    hidden = torch.randn((1, 3, 64), generator=torch.Generator().manual_seed(3))
    anchors = torch.zeros(1, dtype=torch.int64)
    free = walk(network, hidden, anchors)
    first = int(free.tokens[0, 1])
    allowed = torch.ones((1, 5), dtype=torch.bool)
    allowed[0, first] = False
    masked = walk(network, hidden, anchors, given=free.tokens[:, :1], allowed=allowed)
    second = free.logits[0, 1].clone()
    second[first] = -torch.inf
    assert masked.tokens[0, :2].tolist() == [int(free.tokens[0, 0]), int(second.argmax())]
    assert torch.equal(masked.logits[0, 2], walk(network, hidden, anchors, given=masked.tokens[:, :2]).logits[0, 2])


def _row(*tokens: int) -> NDArray[np.int32]:
    bits = np.zeros(288, dtype=np.uint8)
    bits[list(tokens)] = 1
    return np.packbits(bits, bitorder="little").view(np.int32)


@pytest.fixture
def drafter(tmp_path: Path) -> DSparkDrafter:
    bench = Bench(tmp_path, "vanilla")
    tokens = tiny_encode("tell the tool name")
    bench.target.prefill(slot=0, start=0, token_ids=tokens[:-1])
    made = bench.model.make()
    made.extend(tokens)
    made.seat(0)
    return made


def test_a_drafter_puts_the_best_legal_candidate_in_the_place_of_an_illegal_one(drafter: DSparkDrafter) -> None:
    free = list(drafter.propose((), 7).tokens)
    assert len(free) == 7
    assert list(drafter.propose((), 7, _row(free[0], 3)).tokens) == free, "a legal block stays as it is"
    for legal in (3, 31, 32, 287):
        forced = list(drafter.propose(free[:2], 5, _row(legal)).tokens)
        assert forced[0] == legal
        assert len(forced) == 5
    assert drafter.propose(free, 1).tokens == (), "a block ends"


def test_packed_rows_are_read_by_bit() -> None:
    for token in (0, 31, 32, 63, 287):
        assert permits(_row(token), token)
        assert not any(permits(_row(token), other) for other in (0, 31, 32, 63, 287) if other != token)
    assert permits(None, 5)


def test_drafters_are_asked_in_order_and_an_illegal_proposal_is_passed_over() -> None:
    order = InOrder(Scripted(lambda tokens, limit: [tokens[-1]] if tokens[-1] > 1 else []), Scripted(lambda t, n: [9]))
    order.extend([1])
    assert list(order.propose((), 7).tokens) == [9]
    order.extend([2])
    assert list(order.propose((), 7).tokens) == [2]
    assert list(order.propose((), 7, _row(9)).tokens) == [9]
    assert list(order.propose((), 7, _row(8)).tokens) == []


def test_prompt_lookup_before_a_network_answers_only_to_long_matches() -> None:
    sure = draft_policy("prompt_lookup,dspark", lambda: Scripted(lambda t, n: [77])).make()
    unsure = draft_policy("prompt_lookup").make()
    for one in (sure, unsure):
        one.extend([1, 2, 3, 4, 5, 9, 3])
    assert isinstance(unsure, PromptLookup)
    assert unsure.propose((), 1).tokens == [4]
    assert sure.propose((), 1).tokens == [77]
    sure.extend([4, 5])
    assert sure.propose((), 1).tokens == [9]
