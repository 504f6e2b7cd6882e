"""Requests of DeepSeek's models through the whole first step, and what other models take of the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heptagram_backend.errors import ReleaseError, RequestError
from heptagram_backend.generation import GenerationRequest
from heptagram_backend.preprocess import Preprocessor
from heptagram_backend.release import EngineOptions, Release
from heptagram_wire import errors as codes
from tests.formats.deepseek.tokenizers import decoded, write_checkpoint
from tests.preprocess.asking import MODEL, body, refused, tool

_REMINDER = {"role": "latest_reminder", "content": "Today is Monday."}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(folder, "v4")
    return folder


@pytest.fixture(scope="module")
def made(checkpoint: Path) -> Preprocessor:
    return Preprocessor(_release("deepseek_v4"), checkpoint)


def _release(chat_format: str) -> Release:
    engine = EngineOptions(max_model_len=4_096)
    return Release(served_model_name=MODEL, checkpoint="x", format=chat_format, engine=engine)


def _prepared(made: Preprocessor, **changes: Any) -> GenerationRequest:
    return made.prepare(json.dumps(body(**changes)))


def test_a_chat_with_and_without_thinking(made: Preprocessor) -> None:
    plain, thinking = _prepared(made), _prepared(made, reasoning_effort="high", tools=[tool("f", namespace="ns")])
    assert decoded(plain.prompt_ids) == "<｜begin▁of▁sentence｜><｜User｜>hi<｜Assistant｜></think>"
    assert not plain.output.starts_in_reasoning
    assert decoded(thinking.prompt_ids).endswith("hi<｜Assistant｜><think>")
    assert '\n{"name": "ns::f"}\n' in decoded(thinking.prompt_ids)
    assert thinking.output.starts_in_reasoning


def test_v4_1_on_the_tokenizer_of_v4_is_refused_when_it_is_loaded(checkpoint: Path) -> None:
    with pytest.raises(ReleaseError) as caught:
        Preprocessor(_release("deepseek_v4_1"), checkpoint)
    assert "<｜System｜> and <｜deepseek_image｜>" in str(caught.value)


def test_the_prompt_shows_the_schema_as_it_was_written(made: Preprocessor) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "title": "N"}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    assert f"reply:\n{json.dumps(schema)}<｜User｜>" in decoded(_prepared(made, response_format=wanted).prompt_ids)
    any_object = _prepared(made, response_format={"type": "json_object"})
    assert 'reply:\n{"type": "object"}<｜User｜>' in decoded(any_object.prompt_ids)


def test_what_a_mode_may_not_be_names_its_field(made: Preprocessor) -> None:
    with pytest.raises(RequestError) as caught:
        _prepared(made, chat_template_kwargs={"thinking": "yes"})
    assert caught.value.wire.param == "chat_template_kwargs.thinking"


def test_other_models_name_the_roles_and_take_no_effort() -> None:
    wire = refused({"messages": [_REMINDER]})
    assert (wire.code, wire.param) == (codes.INVALID_VALUE, "messages[0].role")
    assert "system, developer, user, assistant, tool" in wire.message
    for effort in ("high", 50):
        wire = refused(body(reasoning_effort=effort))
        assert wire.param == "reasoning_effort"
