"""Qwen3: Hermes-style JSON calls, reasoning between ``<think>`` and ``</think>``.

Serves Qwen3 (hybrid, Instruct and Thinking) and what was trained on its template. Qwen3-Coder and later models write
their parameters as tags: see :mod:`heptagram_backend.formats.qwen3_xml`.
"""

from __future__ import annotations

from collections.abc import Callable

from heptagram_backend.conversation import ChatRequest, PastCall
from heptagram_backend.formats.base import AnswerBounds
from heptagram_backend.formats.hermes.markup import canonical_arguments, quoted
from heptagram_backend.formats.hermes.parse import CallReader, json_call
from heptagram_backend.formats.hermes.tag import HermesCalls
from heptagram_backend.formats.policy import CallForm
from heptagram_backend.formats.qwen3.family import QwenFormat
from heptagram_backend.formats.qwen3.markup import THINK_BEGIN, THINK_END
from heptagram_backend.formats.template import Guard, TemplateMessage
from heptagram_backend.generation import OutputSpec

__all__ = ["Qwen3"]


class Qwen3(QwenFormat):
    name = "qwen3"
    before_call = "\n"

    def past_call(self, call: PastCall, guarded: Guard) -> TemplateMessage:
        # The template writes the name between quotes and a text of arguments as it is.
        name, arguments = quoted(call.name)[1:-1], canonical_arguments(call.arguments)
        return {"name": guarded(name), "arguments": guarded(arguments)}

    def form(self, request: ChatRequest, bounds: AnswerBounds) -> CallForm:
        return HermesCalls(request, bounds, (THINK_BEGIN, THINK_END))

    def reader(self, output: OutputSpec) -> Callable[[], CallReader]:
        del output
        return json_call
