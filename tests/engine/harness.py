"""A tiny vocabulary, a tiny random model and a driver without threads, for tests of the K7 step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LlamaConfig, LlamaForCausalLM

from heptagram_backend.constraint import Grammar, GrammarFactory
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
from heptagram_backend.widths import Widths
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
    def token_ids(self) -> list[int]:
        """All committed tokens, of a request that asked for them."""
        return [token for event in self.events for token in getattr(event, "token_ids", None) or ()]

    @property
    def finish(self) -> Finish:
        assert self.done.is_set()
        last = self.events[-1]
        assert isinstance(last, Finish), last
        return last


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until ``condition`` holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


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
    target: Target,
    *,
    scripts: Mapping[str, Script] | None = None,
    options: EngineOptions | None = None,
    widths: Widths | None = None,
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
        widths=widths,
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


def masked_argmax(target: Target, request: GenerationRequest, vocabulary: Vocabulary) -> Result:
    """The independent reference: one token a forward, seven dead rows, XGrammar asked directly, argmax by numpy."""
    tokens = list(request.prompt_ids)
    _prefill(target, tokens)
    grammar = _matcher(request, vocabulary, target.vocab_size)
    while len(tokens) - len(request.prompt_ids) < request.max_tokens:
        logits = _eight_rows(target, tokens)
        logits[~_allowed(grammar, vocabulary, target.vocab_size)] = -np.inf
        token = int(logits.argmax())
        if token in vocabulary.eos_ids and not request.ignore_eos:
            return Result(tuple(tokens[len(request.prompt_ids) :]), "stop")
        if grammar is not None:
            assert grammar.accept(token)
        tokens.append(token)
    return Result(tuple(tokens[len(request.prompt_ids) :]), "length")


def log_softmaxes(
    target: Target, request: GenerationRequest, tokens: Sequence[int], vocabulary: Vocabulary
) -> list[NDArray[np.float64]]:
    """Log probabilities [V] of each place of ``tokens`` over what is allowed there, as :func:`masked_argmax`."""
    _prefill(target, request.prompt_ids)
    grammar = _matcher(request, vocabulary, target.vocab_size)
    so_far, rows = list(request.prompt_ids), []
    for token in tokens:
        logits = torch.from_numpy(_eight_rows(target, so_far)).double()
        logits[torch.from_numpy(~_allowed(grammar, vocabulary, target.vocab_size))] = -torch.inf
        rows.append(logits.log_softmax(-1).numpy())
        if grammar is not None:
            assert grammar.accept(token)
        so_far.append(token)
    return rows


def agrees_with_one_row_decoding(
    model: Any, target: Target, request: GenerationRequest, answer: Result, vocabulary: Vocabulary, *, tolerance: float
) -> int:
    """Compare with a cached loop of transformers, one row a forward, under XGrammar's mask, along ``answer``.

    The logits must agree within ``tolerance``, and the tokens wherever the margin between the best two exceeds twice
    that. Returns how many tokens were compared so.
    """
    prompt = len(request.prompt_ids)
    tokens = [*request.prompt_ids, *answer.tokens]
    _prefill(target, tokens[:prompt])
    grammar = _matcher(request, vocabulary, target.vocab_size)
    cache, compared = None, 0
    for place in range(len(tokens) - 1):
        with torch.inference_mode():
            output = model(input_ids=torch.tensor([[tokens[place]]]), cache=cache, use_cache=True)
        cache = output.cache
        if place < prompt - 1:
            continue
        row = output.logits[0, -1].float().numpy().copy()
        np.testing.assert_allclose(row, _eight_rows(target, tokens[: place + 1]), atol=tolerance, rtol=0)
        row[~_allowed(grammar, vocabulary, target.vocab_size)] = -np.inf
        second, best = np.partition(row, -2)[-2:]
        if best - second > 2 * tolerance:
            assert int(row.argmax()) == tokens[place + 1]
            compared += 1
        if grammar is not None:
            assert grammar.accept(tokens[place + 1])
    return compared


def _prefill(target: Target, tokens: Sequence[int]) -> None:
    for start in range(0, len(tokens) - 1, target.prefill_chunk):
        end = min(start + target.prefill_chunk, len(tokens) - 1)
        target.prefill(slot=0, start=start, token_ids=tokens[start:end])


def _matcher(request: GenerationRequest, vocabulary: Vocabulary, width: int) -> Grammar | None:
    if request.constraint is None:
        return None
    stops = sorted(vocabulary.eos_ids)
    factory = load_grammar_factory(vocabulary.token_bytes, vocab_width=width, stop_token_ids=stops)
    return factory.matcher(request.constraint)


def _eight_rows(target: Target, tokens: Sequence[int]) -> NDArray[np.float32]:
    """Logits [V] behind ``tokens``, by a forward of the last one and seven dead rows."""
    rows = torch.tensor([[tokens[-1], *[7] * 7]])
    logits = target.forward(rows, torch.tensor([len(tokens) - 1]), torch.tensor([0]))[0, 0]
    row: NDArray[np.float32] = logits.float().numpy().copy()
    return row


def _allowed(grammar: Grammar | None, vocabulary: Vocabulary, width: int) -> NDArray[np.bool_]:
    allowed = np.zeros(width, dtype=np.bool_)
    allowed[: len(vocabulary.token_bytes)] = True
    packed = np.zeros(-(-width // 32), dtype=np.int32)
    if grammar is not None and grammar.fill(packed):
        allowed &= np.unpackbits(packed.view(np.uint8), bitorder="little")[:width].astype(np.bool_)
    return allowed
