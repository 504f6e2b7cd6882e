"""What is written of an answer is what the target computed for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from heptagram_backend.errors import ReleaseError
from heptagram_backend.training.answers import TOP, Ask, read_asks
from heptagram_backend.training.drafter_data import Answer, AnswerSet, answer_path, begin_set, read_answer, split
from tests.training.drafter_bench import TAPS, answered, tiny_asks


def test_hidden_states_are_those_of_the_whole_text_at_once(tiny: Path, answers: list[Answer]) -> None:
    """Whether they came from a prompt, from steps with rejected drafts or, for prompts alike, from the prefix cache."""
    model = LlamaForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    for answer in answers[:12]:
        with torch.inference_mode():
            shown = model(input_ids=answer.tokens[:-1].unsqueeze(0), output_hidden_states=True).hidden_states
        whole = torch.cat([shown[layer + 1][0] for layer in TAPS], dim=-1)
        torch.testing.assert_close(answer.hidden, whole, atol=1e-4, rtol=1e-4)


def test_a_greedy_answer_is_what_the_target_thought_likeliest(answers: list[Answer]) -> None:
    greedy = [answer for answer in answers if answer.seed is None]
    sampled = [answer for answer in answers if answer.seed is not None]
    assert len(greedy) == 40
    assert {answer.seed for answer in sampled} == {5, 11, 17, 23, 29, 35, 41, 47}
    for answer in greedy:
        assert answer.top_ids.shape == (answer.generated, TOP)
        assert torch.equal(answer.top_ids[:, 0], answer.tokens[answer.prompt :])
        assert float(answer.top_logprobs.exp().sum(-1).max()) < 1 + 1e-4
    assert any(not torch.equal(answer.top_ids[:, 0], answer.tokens[answer.prompt :]) for answer in sampled)


def test_answers_are_the_same_again_and_those_that_are_there_are_kept(
    tiny: Path, answers: list[Answer], tmp_path: Path
) -> None:
    first = answered(tiny, tmp_path, 8)
    answer_path(tmp_path, 3).unlink()
    kept = answer_path(tmp_path, 2).stat().st_mtime_ns
    again = answered(tiny, tmp_path, 8)
    assert answer_path(tmp_path, 2).stat().st_mtime_ns == kept
    for one, other, known in zip(first, again, answers, strict=False):
        assert torch.equal(one.tokens, other.tokens)
        assert torch.equal(one.tokens, known.tokens)
    assert [answer.held_out for answer in again] == [ask.held_out for ask in tiny_asks(8)]
    assert [len(part) for part in split(again)] == [6, 2]


def test_a_folder_of_other_answers_is_refused(tmp_path: Path) -> None:
    begin_set(tmp_path, {"target_layer_ids": [1]})
    begin_set(tmp_path, {"target_layer_ids": [1]})
    with pytest.raises(ReleaseError, match="other settings"):
        begin_set(tmp_path, {"target_layer_ids": [2]})
    with pytest.raises(ReleaseError, match="holds none"):
        AnswerSet.open(tmp_path)
    (tmp_path / "000000.safetensors").write_bytes(b"none")
    with pytest.raises(ReleaseError, match="cannot be read"):
        read_answer(tmp_path / "000000.safetensors")


def test_prompts_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    request = {"messages": [{"role": "user", "content": "Hi"}]}
    path.write_text(json.dumps({"kind": "chat", "group": "hi", "request": request}) + "\n\n")
    assert read_asks(path) == [Ask("chat", "hi", request)]
    for bad in ("{", '{"kind": "chat"}', '{"kind": "chat", "group": "a", "request": {}, "more": 1}'):
        path.write_text(bad)
        with pytest.raises(ReleaseError, match="prompts"):
            read_asks(path)
