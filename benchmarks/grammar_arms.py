"""From the tools of a request to a compiled grammar: our way, and XGrammar's own structural tag beside it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import xgrammar

from benchmarks.turns import Run
from benchmarks.workload import closed
from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.conversation import ChatRequest
from heptagram_backend.formats import load_format
from heptagram_backend.requests import RequestLimits, enforce, parse_chat_request
from heptagram_backend.xgrammar_impl import XGrammarFactory
from tests.conformance import bfcl
from tests.conformance.cases import PROMPTS, toolset

_LIMITS: Final = RequestLimits()

Tool = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Form:
    """A format of ours, and what XGrammar calls the one that it has built in. ``tokens`` are the vocabulary's."""

    format: str
    builtin: str
    tokens: Callable[[], Sequence[bytes | None]]
    end: int


def _deepseek() -> Sequence[bytes | None]:
    from tests.formats.deepseek.grammar import token_bytes

    return token_bytes()


def _smollm2() -> Sequence[bytes | None]:
    from tests.formats.smollm2 import token_bytes

    return token_bytes()


FORMS: Final = (Form("deepseek_v4", "deepseek_v4", _deepseek, 1), Form("chatml_json", "qwen_3", _smollm2, 2))


def declared(count: int, *, lengths: bool = True) -> list[Tool]:
    """The first of the real tool sets' tools, then of BFCL's, each name once.

    ``lengths`` says whether those that bound the length of a string are among them.
    """
    ours = chain.from_iterable(map(toolset, PROMPTS))
    others = chain.from_iterable(prompt.tools for prompt in bfcl.sample(100))
    by_name: dict[str, Tool] = {}
    for tool in chain(ours, others):
        if lengths or "Length" not in json.dumps(tool):
            by_name.setdefault(tool["function"]["name"], tool)
    return list(by_name.values())[:count]


def changed(tools: Sequence[Tool]) -> list[Tool]:
    """The last of ``tools`` with one more parameter."""
    *others, last = tools
    function = last["function"]
    properties = {**function["parameters"].get("properties", {}), "one_more": {"type": "string"}}
    return [
        *others,
        {**last, "function": {**function, "parameters": {**function["parameters"], "properties": properties}}},
    ]


class Ours:
    """Read and walk, build the tag, compile: what a server does with the tools of a request."""

    def __init__(self, form: Form) -> None:
        tokens = form.tokens()
        self.width = len(tokens)
        self.factory = XGrammarFactory(tokens, self.width, [form.end])
        self._format = load_format(form.format)

    def read(self, tools: Sequence[Tool]) -> ChatRequest:
        """The request with its schemas walked, which must call one of ``tools`` or more.

        Raises:
            RequestError: it is refused.
        """
        body = {"messages": [{"role": "user", "content": "Go."}], "tools": tools, "tool_choice": "required"}
        return enforce(parse_chat_request(json.dumps(body), _LIMITS, "m"))

    def spec(self, request: ChatRequest) -> ConstraintSpec:
        """What is compiled.

        Raises:
            RequestError: the markup cannot carry it.
        """
        spec = self._format.constrain(request).constraint
        assert spec is not None
        return spec

    def run(self, tools: Sequence[Tool]) -> Run:
        """Never seen; then with one tool changed; then as before."""
        self.factory.forget()
        walk = Clock()
        request = self.read(tools)
        walk.stop()
        first = Clock()
        spec = self.spec(request)
        compiled: Any = self.factory.compile(spec)
        first.stop()
        other = self.spec(self.read(changed(tools)))
        changes = Clock()
        self.factory.compile(other)
        changes.stop()
        again = Clock()
        self.factory.compile(spec)
        again.stop()
        return _numbers(walk, first, changes, again, compiled.memory_size_bytes)


class BuiltIn:
    """XGrammar's own structural tag for the same tools, closed as ours are, over the same vocabulary."""

    def __init__(self, form: Form) -> None:
        pieces = [piece or b"" for piece in form.tokens()]
        self._name = form.builtin
        self._vocabulary = xgrammar.TokenizerInfo(
            pieces, xgrammar.VocabType.RAW, vocab_size=len(pieces), stop_token_ids=[form.end]
        )

    def run(self, tools: Sequence[Tool]) -> Run:
        """See :meth:`Ours.run`."""
        compiler = xgrammar.GrammarCompiler(self._vocabulary, max_threads=1)
        shut, others = closed(list(tools)), closed(changed(tools))
        first = Clock()
        tag = self._tag(shut)
        compiled = compiler.compile_structural_tag(tag)
        first.stop()
        other = self._tag(others)
        changes = Clock()
        compiler.compile_structural_tag(other)
        changes.stop()
        again = Clock()
        compiler.compile_structural_tag(tag)
        again.stop()
        return _numbers(None, first, changes, again, compiled.memory_size_bytes)

    def _tag(self, tools: Any) -> str:
        tag = xgrammar.get_model_structural_tag(self._name, tools=tools, tool_choice="required", reasoning="disabled")
        return str(tag.model_dump_json())


class Clock:
    """Time and this process's computing since it was made, in milliseconds."""

    def __init__(self) -> None:
        self._start = time.perf_counter(), time.process_time()
        self.ms = self.cpu_ms = 0.0

    def stop(self) -> float:
        self.ms = 1e3 * (time.perf_counter() - self._start[0])
        self.cpu_ms = 1e3 * (time.process_time() - self._start[1])
        return self.ms


def _numbers(walk: Clock | None, first: Clock, changes: Clock, again: Clock, size: int) -> Run:
    return {
        "walk_ms": walk.cpu_ms if walk else 0.0,
        "first_ms": first.ms + (walk.ms if walk else 0.0),
        "first_cpu_ms": first.cpu_ms + (walk.cpu_ms if walk else 0.0),
        "changed_cpu_ms": changes.cpu_ms,
        "again_ms": again.ms,
        "mib": size / 2**20,
    }
