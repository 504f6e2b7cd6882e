"""Case e-58: a model that writes blanks wherever the grammar permits them still ends its call within few tokens."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor

from heptagram_backend.conversation import ToolChoice
from heptagram_backend.engine import EngineLimits
from heptagram_backend.engines.parts import assemble
from heptagram_backend.formats import FORMATS, load_format
from heptagram_backend.generation import GenerationRequest, OutputSpec
from heptagram_backend.release import EngineOptions
from heptagram_backend.targets.scripted import ScriptedTarget
from tests.engine.harness import Collector, tiny_encode, tiny_parts
from tests.formats.samples import request, walked

SAVE = walked(
    "save",
    {
        "type": "object",
        "properties": {"items": {"type": "array", "items": {"type": "integer"}}},
        "required": ["items"],
        "additionalProperties": False,
    },
)
BLANKS, CLOSERS = b" \n\t\r", b'"}]</'


class Blank(ScriptedTarget):
    """Wants a blank above all, then what closes something, then anything."""

    def forward(self, token_ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
        logits = super().forward(token_ids, positions, slots)
        for wanted, strength in ((BLANKS, 3), (CLOSERS, 2)):
            logits[..., torch.tensor(list(wanted))] += strength
        return logits


@pytest.mark.parametrize("name", FORMATS)
def test_blanks_end(name: str) -> None:
    held = load_format(name).constrain(
        request(tools=(SAVE,), tool_choice=ToolChoice("required"), parallel_tool_calls=False)
    )
    target = Blank(lambda tokens: 48, vocab_size=288, num_slots=1, max_model_len=4200)
    engine = assemble(
        tiny_parts(target, options=EngineOptions(mask_pool_rows=128)), EngineLimits("1", 1, 60_000, "tiny")
    )
    sink = Collector()
    wanted = GenerationRequest(
        tuple(tiny_encode("Save 1,2,3.")),
        OutputSpec(name, parse_calls=True, markup="calls"),
        "tiny",
        max_tokens=4096,
        constraint=held.constraint,
    )
    engine.submit(wanted, sink)
    assert sink.done.wait(60)
    engine.close()
    assert sink.finish.reason == "tool_calls"
    assert sink.finish.usage.completion_tokens < 400
    assert all(isinstance(json.loads(arguments)["items"], list) for arguments in sink.arguments)
