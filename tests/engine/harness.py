"""A tiny vocabulary, a tiny random model and a driver without threads, for tests of the K7 step."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from heptagram_backend.constraint import GrammarFactory
from heptagram_backend.drafts import DraftPolicy, draft_policy
from heptagram_backend.drafts.scripted import Script, Scripted
from heptagram_backend.engines.parts import Parts, Vocabulary, make_parts
from heptagram_backend.errors import HeptagramError
from heptagram_backend.generation import DraftSource, GenerationRequest
from heptagram_backend.grammars import load_grammar_factory
from heptagram_backend.release import EngineOptions
from heptagram_backend.sequence import Sequence as Running
from heptagram_backend.sequence import State
from heptagram_backend.targets.base import Target
from heptagram_wire.events import ArgumentsDelta, CallStart, Event, Failure, Finish, TextDelta


@dataclass
class Collector:
    """A sink that keeps what it is told and can be waited for."""

    events: list[Event] = field(default_factory=list)
    error: HeptagramError | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def send(self, events: Sequence[Event], *, final: bool) -> None:
        assert not self.done.is_set(), "something came after the end"
        self.events.extend(events)
        if final:
            assert isinstance(self.events[-1], Finish | Failure)
            self.done.set()

    def fail(self, error: HeptagramError) -> None:
        assert not self.done.is_set()
        assert not self.events, "fail() after something was sent"
        self.error = error
        self.done.set()

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def arguments(self) -> list[str]:
        calls = ["" for event in self.events if isinstance(event, CallStart)]
        for event in self.events:
            if isinstance(event, ArgumentsDelta):
                calls[event.index] += event.text
        return calls

    @property
    def finish(self) -> Finish:
        assert self.done.is_set()
        last = self.events[-1]
        assert isinstance(last, Finish), last
        return last


@cache
def tiny_token_bytes() -> tuple[bytes | None, ...]:
    """Every byte, some words that the grammars force or that may be cut in several ways, and three control tokens."""
    words = ['{"', '": ', '", "', "name", "arguments", "<tool_call>", "</tool_call>", "tool", '"}', "}}", "th", "the "]
    return (*(bytes([value]) for value in range(256)), *(word.encode() for word in words), None, None, None)


EOS = len(tiny_token_bytes()) - 1


def tiny_encode(text: str) -> list[int]:
    """Longest match first: a canonical tokenization of the tiny vocabulary."""
    table = {piece: token for token, piece in enumerate(tiny_token_bytes()) if piece is not None}
    raw, ids, at = text.encode(), [], 0
    while at < len(raw):
        size = next(size for size in range(min(16, len(raw) - at), 0, -1) if raw[at : at + size] in table)
        ids.append(table[raw[at : at + size]])
        at += size
    return ids


def tiny_vocabulary() -> Vocabulary:
    return Vocabulary(tiny_token_bytes(), tiny_encode, frozenset({EOS}), "tiny")


def tiny_factory(width: int) -> GrammarFactory:
    return load_grammar_factory(tiny_token_bytes(), vocab_width=width, stop_token_ids=[EOS])


def tiny_checkpoint(folder: Path, *, seed: int = 0) -> Path:
    """A random Llama of two layers, its logits wider than the vocabulary, as of a padded checkpoint."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=288,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        initializer_range=0.3,
        eos_token_id=EOS,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def tiny_parts(
    target: Target, *, scripts: Mapping[str, Script] | None = None, options: EngineOptions | None = None
) -> Parts:
    """Parts of an engine over the tiny vocabulary; ``scripts`` adds draft sources of a test."""
    scripted = {
        name: DraftPolicy(lambda script=script: Scripted(script), forced=False)  # type: ignore[misc]
        for name, script in (scripts or {}).items()
    }

    def policy(name: DraftSource) -> DraftPolicy:
        return scripted.get(name) or draft_policy(name)

    return make_parts(
        target=target,
        vocabulary=tiny_vocabulary(),
        factory=tiny_factory(target.vocab_size),
        options=options or EngineOptions(mask_pool_rows=128),
        policy=policy,
    )


@dataclass(frozen=True)
class Result:
    """What became of one request: its tokens, the stop token included, and why it ended."""

    tokens: tuple[int, ...]
    reason: str


def drive(parts: Parts, requests: Sequence[GenerationRequest], slots: Sequence[int] | None = None) -> list[Result]:
    """Run all requests in one batch from the first step to the last, without the engine's thread."""
    slots = range(len(requests)) if slots is None else slots
    running = [_prefilled(parts, request, slot) for request, slot in zip(requests, slots, strict=True)]
    results: dict[str, Result] = {}
    while live := [sequence for sequence in running if sequence.id not in results]:
        for sequence in live:
            if sequence.pending_grammar is not None:
                sequence.grammar, sequence.pending_grammar = sequence.pending_grammar.result(), None
        for outcome in parts.step.run(live):
            if outcome.error is not None:
                raise outcome.error
            if outcome.reason is not None:
                sequence = outcome.sequence
                tokens = tuple(sequence.tokens[sequence.prompt_tokens :])
                results[sequence.id] = Result(tokens, outcome.reason)
                sequence.release_grammar()
    return [results[sequence.id] for sequence in running]


def _prefilled(parts: Parts, request: GenerationRequest, slot: int) -> Running:
    sequence = parts.make_sequence(f"{slot}", request, Collector())
    sequence.move(State.PREFILLING)
    sequence.slot = slot
    while size := min(parts.target.prefill_chunk, sequence.prefill_left):
        chunk = sequence.tokens[sequence.cached : sequence.cached + size]
        parts.target.prefill(slot=slot, start=sequence.cached, token_ids=chunk)
        sequence.cached += size
    sequence.move(State.DECODING)
    if request.constraint is not None:
        sequence.pending_grammar = parts.grammars.start(request.constraint)
    return sequence
