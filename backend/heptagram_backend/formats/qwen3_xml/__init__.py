"""Qwen3-Coder and later Qwen models (Qwen3-Coder-Next, Qwen3.5, Qwen3.6): a tag for each parameter of a call.

The markup has no types: those that a tool declares decide, see :mod:`heptagram_backend.formats.qwen3_xml.types`. In
the history a string is written as it is and everything else as JSON, ``true`` where the templates of Qwen3-Coder and
Qwen3.5 have Python's ``True``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial

from heptagram_backend.conversation import ChatRequest, PastCall, Tool
from heptagram_backend.formats.base import AnswerBounds
from heptagram_backend.formats.hermes.parse import CallReader
from heptagram_backend.formats.policy import CallForm, callable_tools
from heptagram_backend.formats.qwen3.family import QwenFormat
from heptagram_backend.formats.qwen3_xml.markup import can_name, without_end_tags
from heptagram_backend.formats.qwen3_xml.parse import XmlCallReader
from heptagram_backend.formats.qwen3_xml.tag import XmlCalls
from heptagram_backend.formats.qwen3_xml.types import ANY, types_of
from heptagram_backend.formats.raw_value import branches
from heptagram_backend.formats.template import Guard, TemplateMessage, read_arguments
from heptagram_backend.generation import OutputSpec

__all__ = ["Qwen3Xml"]


class Qwen3Xml(QwenFormat):
    name = "qwen3_xml"
    before_call = "\n\n"

    def past_call(self, call: PastCall, guarded: Guard) -> TemplateMessage:
        arguments = {
            guarded(name): guarded(value_text(value)) for name, value in read_arguments(call, writable=can_name).items()
        }
        return {"name": guarded(call.name), "arguments": arguments}

    def form(self, request: ChatRequest, bounds: AnswerBounds) -> CallForm:
        return XmlCalls(request, bounds)

    def reader(self, output: OutputSpec) -> Callable[[], CallReader]:
        return partial(XmlCallReader, output.tools)

    def known(self, request: ChatRequest) -> Mapping[str, Mapping[str, str]]:
        return {tool.name: _parameter_types(tool) for tool in callable_tools(request)}


def value_text(value: object) -> str:
    """An argument as it is written between its tags."""
    return without_end_tags(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _parameter_types(tool: Tool) -> Mapping[str, str]:
    """The types of each declared parameter: of what is enforced, where something is."""
    root = tool.parameters if tool.enforced is None else tool.enforced
    forms = [root] if tool.enforced is None else list(branches(root, root.get("$defs", {})))
    types: dict[str, frozenset[str]] = {}
    for form in forms:
        properties = form.get("properties")
        if "const" in form:
            properties = {name: {"const": value} for name, value in form["const"].items()}
        for name, schema in (properties if isinstance(properties, Mapping) else {}).items():
            types[name] = types.get(name, frozenset()) | types_of(schema, root)
    return {name: "|".join(sorted(found)) for name, found in types.items() if found and not found >= ANY}
