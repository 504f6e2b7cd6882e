"""A request from its text to a plan, where the checkpoint's template decides whether the answer begins in reasoning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heptagram_backend.formats import load_format
from heptagram_backend.formats.base import CallArguments, CallBegin, CallFinished, Reasoning
from heptagram_backend.generation import GenerationRequest
from heptagram_backend.preprocess import Preprocessor
from heptagram_backend.release import Release
from tests.formats.samples import parse
from tests.formats.tokenizers import write_checkpoint

# Ours, and shorter than any model's: it opens the reasoning, or closes an empty one, as Qwen3.5's does.
TEMPLATE = """\
{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% else %}<think>
{% endif %}"""
TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"s": {"type": ["string", "null"]}},
            "required": ["s"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def preprocessor(tmp_path_factory: pytest.TempPathFactory) -> Preprocessor:
    folder: Path = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(folder, "qwen")
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return Preprocessor(Release("qwen", str(folder), "qwen3_xml"), folder)


def plan(preprocessor: Preprocessor, **fields: Any) -> GenerationRequest:
    asked = {"model": "qwen", "messages": [{"role": "user", "content": "Go."}], "tools": [TOOL], **fields}
    made = preprocessor.prepare(json.dumps(asked))
    return GenerationRequest.from_json(made.to_json(), made.prompt_ids)


def test_a_plan_reads_what_it_constrains(preprocessor: Preprocessor) -> None:
    made = plan(preprocessor, tool_choice="required")
    assert made.output.starts_in_reasoning
    assert made.output.tools == {"f": {"s": "null|string"}}
    assert made.constraint is not None
    text = "Hm\n</think>\n\n<tool_call>\n<function=f>\n<parameter=s>\nnull\n</parameter>\n</function>\n</tool_call>"
    assert parse(load_format("qwen3_xml").parser(made.output), text) == [
        Reasoning("Hm"),
        CallBegin("f"),
        CallArguments('{"s": null}'),
        CallFinished(),
    ]


def test_thinking_can_be_turned_off(preprocessor: Preprocessor) -> None:
    made = plan(preprocessor, reasoning_effort="none")
    assert not made.output.starts_in_reasoning
    assert made.constraint is not None
    assert "</think>" not in made.constraint.source.partition('"excludes"')[0]
    assert len(made.prompt_ids) == len(plan(preprocessor).prompt_ids) + 2  # "\n\n" and the end of the reasoning
