"""Every format over its real tokenizer: a request becomes a plan, a model says what a test wants, events come out.

The model is scripted: it wants to say a text, token by token, and where the constraint forbids that it says the first
token that is allowed. All around it is what is served: preprocessor, grammar, engine, parser, emitter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest import mock

from heptagram_backend import preprocess
from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.conversation import Tool, ToolChoice
from heptagram_backend.engine import EngineLimits
from heptagram_backend.engines.parts import Vocabulary, assemble, make_parts
from heptagram_backend.errors import RequestError
from heptagram_backend.formats import load_format
from heptagram_backend.generation import GenerationRequest
from heptagram_backend.preprocess import Preprocessor
from heptagram_backend.release import EngineOptions, Release
from heptagram_backend.targets.scripted import ScriptedTarget
from heptagram_backend.tokenizer import CheckpointTokenizer
from heptagram_backend.xgrammar_impl import XGrammarFactory
from heptagram_wire.errors import WireError
from heptagram_wire.events import Event
from tests.engine.harness import Collector
from tests.formats import smollm2
from tests.formats import tokenizers as templates
from tests.formats.deepseek import grammar as deepseek
from tests.formats.deepseek.tokenizers import tokenizer as deepseek_tokenizer
from tests.formats.samples import request

FORMATS: Final = ("chatml_json", "chatml_dsml", "deepseek_v4", "deepseek_v4_1", "qwen3", "qwen3_xml", "llama3_json")
MODEL: Final = "m"


class _Templated:
    """A tokenizer of Qwen or Llama with a template of ours: theirs are no part of the project."""

    def __init__(self, inner: CheckpointTokenizer) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None, **_: Any) -> str:
        return json.dumps([tools or [], messages], ensure_ascii=False) + "<|im_start|>assistant\n"


@dataclass(frozen=True, slots=True)
class Kit:
    """One format, as it is served. ``eos`` is the token that ends its answers."""

    name: str
    preprocessor: Preprocessor
    tokenizer: Any
    token_bytes: Sequence[bytes | None]
    factory: XGrammarFactory
    eos: int

    def plan(self, body: Mapping[str, Any]) -> GenerationRequest:
        made = self.preprocessor.prepare(json.dumps(body))
        return GenerationRequest.from_json(made.to_json(), made.prompt_ids)

    def prompt(self, body: Mapping[str, Any]) -> str:
        """The prompt as text, control tokens left out."""
        pieces = (self.token_bytes[token] or b"" for token in self.plan(body).prompt_ids)
        return b"".join(pieces).decode()

    def refusal(self, body: Mapping[str, Any]) -> WireError:
        """Why no generation is started for a request."""
        try:
            self.preprocessor.prepare(json.dumps(body))
        except RequestError as error:
            return error.wire
        raise AssertionError("it was not refused")

    def answer(self, body: Mapping[str, Any], says: str) -> list[Event]:
        """The events of an answer by a model that wants to say ``says`` and then to end."""
        plan = self.plan({"max_tokens": 120, **body})
        width = len(self.token_bytes)
        target = ScriptedTarget(self._script(plan, says), vocab_size=width, num_slots=1, max_model_len=1024)
        parts = make_parts(
            target=target,
            vocabulary=Vocabulary(
                self.token_bytes, self.tokenizer.encode, frozenset({self.eos}), plan.vocabulary or ""
            ),
            factory=self.factory,
            options=EngineOptions(max_num_seqs=1, mask_pool_rows=64),
        )
        engine = assemble(parts, EngineLimits("1", 1, 60_000, plan.vocabulary or ""))
        sink = Collector()
        try:
            engine.submit(plan, sink)
            assert sink.done.wait(60)
            if sink.error is not None:
                raise sink.error
            return sink.events
        finally:
            engine.close()

    def constraint(self, *tools: Tool) -> ConstraintSpec:
        """What holds where one of ``tools`` must be called."""
        asked = request(tools=tools, tool_choice=ToolChoice("required"))
        held = load_format(self.name).constrain(asked).constraint
        assert held is not None
        return held

    def begins(self, spec: ConstraintSpec, text: str) -> bool:
        """Can an answer begin with ``text``?"""
        grammar = self.factory.matcher(spec)
        try:
            return grammar.accept_text(text.encode())
        finally:
            grammar.close()

    def _script(self, plan: GenerationRequest, says: str) -> Callable[[tuple[int, ...]], int]:
        tokens = self.tokenizer.encode(says)

        def script(context: tuple[int, ...]) -> int:
            place = len(context) - len(plan.prompt_ids)
            return int(tokens[place]) if place < len(tokens) else self.eos

        return script


@cache
def kit(name: str) -> Kit:
    made = _tokenizer(name)
    with mock.patch.object(preprocess, "CheckpointTokenizer", return_value=made):
        preprocessor = Preprocessor(Release(MODEL, "shared", name), Path())
    pieces = made.token_bytes(load_format(name).markers)
    [eos] = made.eos_ids
    return Kit(name, preprocessor, made, pieces, _factory(name, pieces, eos), eos)


def _tokenizer(name: str) -> Any:
    if name == "chatml_dsml":
        return smollm2.dsml_tokenizer()
    if name == "chatml_json":
        return smollm2.tokenizer()
    if name.startswith("deepseek"):
        return deepseek_tokenizer(name.removeprefix("deepseek_"))
    return _Templated(templates.tokenizer(name))


def _factory(name: str, pieces: Sequence[bytes | None], eos: int) -> XGrammarFactory:
    if name == "chatml_dsml":
        return smollm2.dsml_factory()
    if name == "chatml_json":
        return smollm2.factory()
    if name == "deepseek_v4":
        return deepseek.factory()
    return XGrammarFactory(pieces, len(pieces), [eos]) if name == "deepseek_v4_1" else templates.factory(name)
