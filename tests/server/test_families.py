"""Qwen's and Llama's formats on the real server: their architectures and tokenizers, random weights.

The models are as wide as the real ones, beyond what their tokenizers have. Their templates are ours: the real ones are
no part of the project. What such a model calls means nothing, but it is a call, and valid.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from jsonschema import Draft202012Validator
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from heptagram_backend.server.model import values_for
from heptagram_backend.server.repository import Overrides, project_repository, write_repository
from heptagram_client import Client
from heptagram_wire.events import Finish
from tests.formats.tokenizers import write_checkpoint
from tests.server.served import Served
from tests.server_fixture import running_server

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"kind": {"enum": ["file", "text"]}, "deep": {"type": "boolean"}, "limit": {"enum": [1, 10, 100]}},
    "required": ["kind", "deep", "limit"],
    "additionalProperties": False,
}
FUNCTION: Final = {"name": "search", "description": "Searches.", "strict": True, "parameters": SCHEMA}
REQUEST: Final = {
    "messages": [{"role": "user", "content": "Find cats."}],
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "max_tokens": 200,
}
SIZES: Final[dict[str, Any]] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
}
QWEN_TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n{% if not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
)
LLAMA_TEMPLATE: Final = (
    "<|begin_of_text|>{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n"
    "{{ message.content }}<|eot_id|>{% endfor %}<|start_header_id|>assistant<|end_header_id|>\n\n"
)


def write_model(folder: Path, family: str) -> Path:
    torch.manual_seed(0)
    model: Any = (
        Qwen3ForCausalLM(Qwen3Config(**SIZES, vocab_size=151_936, bos_token_id=151_643, eos_token_id=151_645))
        if family == "qwen"
        else LlamaForCausalLM(LlamaConfig(**SIZES, vocab_size=128_256, bos_token_id=128_000, eos_token_id=128_009))
    )
    model.to(torch.bfloat16).save_pretrained(folder)
    write_checkpoint(folder, family)
    (folder / "chat_template.jinja").write_text(QWEN_TEMPLATE if family == "qwen" else LLAMA_TEMPLATE)
    return folder


@pytest.fixture(
    scope="module",
    params=["qwen3", *(pytest.param(name, marks=pytest.mark.full) for name in ("qwen3_xml", "llama3_json"))],
)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    family = "llama" if request.param == "llama3_json" else "qwen"
    folder = write_model(tmp_path_factory.mktemp("models") / f"tiny-{family}", family)
    given = Overrides({"format": request.param}, {"max_num_seqs": 2})
    with running_server(write_repository(project_repository(), values_for(str(folder), folder, given))) as process:
        yield Served(process)


def test_a_strict_call_is_valid_and_drafts_change_no_token(served: Served) -> None:
    told = []
    with Client(served.grpc_url) as client:
        for drafts in (7, 0):
            asked = {**REQUEST, "return_token_ids": True, "heptagram": {"num_speculative_tokens": drafts}}
            with client.stream({**asked, "chat_template_kwargs": {"enable_thinking": False}}) as stream:
                events = list(stream)
            tokens = [token for event in events for token in getattr(event, "token_ids", None) or ()]
            finish = events[-1]
            assert isinstance(finish, Finish)
            told.append((tokens, finish.stats.steps))
        message = client.complete({**REQUEST, "chat_template_kwargs": {"enable_thinking": False}})
    assert message.finish_reason == "tool_calls"
    [call] = message.tool_calls
    assert call.name == "search"
    Draft202012Validator(SCHEMA).validate(json.loads(call.arguments))
    (drafted, fewer), (plain, steps) = told
    assert drafted == plain
    assert fewer < steps
