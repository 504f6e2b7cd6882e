"""Grammars by XGrammar; the only module that imports it.

JSON inside a constraint is *canonical*: one space after ``,`` and ``:``, none elsewhere, properties in declared order.
So nothing can go on writing blanks, and the text between two values is forced.
"""

from __future__ import annotations

import json
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from math import inf
from threading import Lock
from typing import Any, Final

import numpy as np
import xgrammar
from numpy.typing import NDArray

from heptagram_backend.caller_grammar import of_regex, tame
from heptagram_backend.constraint import ConstraintSpec
from heptagram_backend.ebnf import Rules, harden, longest_forced, read, shortest, write
from heptagram_backend.errors import RequestError
from heptagram_backend.grammar_cost import MatchingBudget, require_affordable
from heptagram_backend.listed_values import ListedValues
from heptagram_backend.lowering import lower
from heptagram_backend.multiples import end_multiples
from heptagram_backend.repeats import split_counts
from heptagram_backend.schema.regex import PatternError, parse
from heptagram_backend.schema.rounds import with_distinct_rounds
from heptagram_wire import errors as codes

_MAX_FORCED: Final = 1 << 17  # characters
# "[12:00:00] /project/cpp/file.cc:123: Check failed: (...) is false: "
_PREFIX: Final = re.compile(r"^\[[\d:]+\] \S+:\d+: (?:Check failed: \(.*?\) is false: )?")


class XGrammarFactory:
    """Compiles constraints for one vocabulary. Thread-safe; its matchers belong to one thread at a time.

    Args:
        token_bytes: the bytes of each token id; ``None`` for a control token, which no grammar then ever allows.
        vocab_width: V, the width of the model's logits; ids from ``len(token_bytes)`` on are never allowed.
        stop_token_ids: allowed exactly where the constraint is complete.
        max_compile_threads: threads of one compilation.
        cache_limit_bytes: compiled grammars are dropped, least recently used first, beyond this size.
    """

    def __init__(
        self,
        token_bytes: Sequence[bytes | None],
        vocab_width: int,
        stop_token_ids: Sequence[int],
        max_compile_threads: int = 1,
        cache_limit_bytes: int = 256 << 20,
    ) -> None:
        if len(token_bytes) > vocab_width:
            raise ValueError(f"vocab_width is {vocab_width} but the tokenizer has {len(token_bytes)} tokens")
        vocabulary = [token or b"" for token in token_bytes]
        tokenizer = xgrammar.TokenizerInfo(
            vocabulary,
            xgrammar.VocabType.RAW,
            vocab_size=vocab_width,
            stop_token_ids=list(stop_token_ids),
        )
        self._width = vocab_width
        self._ends = frozenset(stop_token_ids)
        self._never = (frozenset(range(vocab_width)) - _writable(vocabulary)) - self._ends
        self._compiler = xgrammar.GrammarCompiler(
            tokenizer, max_threads=max_compile_threads, cache_limit_bytes=cache_limit_bytes
        )
        self._cache = _OnceCache(cache_limit_bytes)
        self._cache_limit = cache_limit_bytes
        self._lock = Lock()
        self._live = 0

    @property
    def vocab_width(self) -> int:
        return self._width

    @property
    def live(self) -> int:
        return self._live

    def compile(self, spec: ConstraintSpec) -> object:
        return self._cache.get(spec.digest, lambda: self._compile(spec))

    def holds(self, spec: ConstraintSpec) -> bool:
        return self._cache.holds(spec.digest)

    def forget(self) -> None:
        self._compiler.clear_cache()
        self._cache.clear()

    def matcher(self, spec: ConstraintSpec) -> XGrammarMatcher:
        compiled = self.compile(spec)
        with self._lock:
            self._live += 1
        return XGrammarMatcher(compiled, self._width, self._never, self._closed)

    def _closed(self) -> None:
        with self._lock:
            self._live -= 1

    def _compile(self, spec: ConstraintSpec) -> Any:
        try:
            compiled = self._translate(spec)
        # XGrammar raises RuntimeError, its own subclasses of it, and ValueError (bad JSON) for faults of the source.
        except (RuntimeError, ValueError) as error:
            raise RequestError(
                f"the constraint cannot be compiled ({_PREFIX.sub('', str(error)).strip()}); correct or simplify it",
                code=codes.UNSUPPORTED_SCHEMA,
            ) from error
        row = np.zeros(-(-self._width // 32), np.int32)
        first = XGrammarMatcher(compiled, self._width, self._never)
        if first.fill(row) and not row.any():
            raise _admits_nothing()
        if compiled.memory_size_bytes > self._cache_limit:
            raise RequestError(
                f"the compiled constraint takes {compiled.memory_size_bytes >> 20} MiB and {self._cache_limit >> 20} "
                "are kept for all; constrain fewer tools at once, or simplify their schemas",
                code=codes.GRAMMAR_TOO_COSTLY,
            )
        if spec.kind == "ebnf":
            require_affordable(first, width=self._width, ends=self._ends)
        return compiled

    def _translate(self, spec: ConstraintSpec) -> Any:
        match spec.kind:
            case "structural_tag":
                return self._compiler.compile_structural_tag(json.dumps(lower(json.loads(spec.source), _json_rules)))
            case "json_schema":
                return self._compiler.compile_grammar(write(_json_rules(spec.source)))
            case "regex":
                return self._compiler.compile_grammar(write(_caller_rules(_of_pattern(spec.source))))
            case "ebnf":
                return self._compiler.compile_grammar(write(_caller_rules(spec.source)))


class XGrammarMatcher:
    """One request's place in its grammar. Rollback is exact and unlimited."""

    __slots__ = ("_budget", "_last_word", "_matcher", "_never", "_on_close", "_words")

    def __init__(
        self, compiled: Any, width: int, never: Collection[int], on_close: Callable[[], None] = lambda: None
    ) -> None:
        self._matcher = xgrammar.GrammarMatcher(compiled)
        self._words = -(-width // 32)
        self._last_word = np.int32((1 << width % 32) - 1) if width % 32 else None
        self._never = never
        self._on_close: Callable[[], None] | None = on_close
        self._budget = MatchingBudget()

    @property
    def terminated(self) -> bool:
        return bool(self._matcher.is_terminated())

    @property
    def completed(self) -> bool:
        return bool(self._matcher.is_completed())

    def fill(self, row: NDArray[np.int32]) -> bool:
        assert not self.terminated, "a terminated matcher was asked for a mask"
        assert row.shape == (self._words,), f"a mask row has {self._words} words, not {row.shape}"
        began = time.thread_time()
        limited = self._matcher.fill_next_token_bitmask(row)
        self._budget.charge(began)
        if not limited:
            return False
        if self._last_word is not None:  # bits beyond the width are left as they were
            row[-1] &= self._last_word
        return True

    def accept(self, token: int) -> bool:
        assert not self.terminated, "a terminated matcher was given a token"
        # XGrammar refuses control tokens as well, but complains on stderr each time.
        if token in self._never:
            return False
        began = time.thread_time()
        accepted = bool(self._matcher.accept_token(token))
        self._budget.charge(began)
        return accepted

    def accept_text(self, text: bytes) -> bool:
        assert not self.terminated, "a terminated matcher was given text"
        return bool(self._matcher.accept_string(text))

    def rollback(self, count: int) -> None:
        if count:
            self._matcher.rollback(count)

    def forced_text(self) -> bytes:
        assert not self.terminated, "a terminated matcher was asked for its forced text"
        try:
            return str(self._matcher.find_jump_forward_string()).encode()
        except UnicodeDecodeError:  # the state is inside a multi-byte character
            return b""

    def close(self) -> None:
        if self._on_close is not None:
            on_close, self._on_close = self._on_close, None
            self._matcher = None
            on_close()


class _OnceCache:
    """Values by key, each made once even when several threads ask together; least recently used ones are dropped.

    ``memory_size_bytes`` of a value is its weight. A failure is told to all who waited for it and is not kept.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._lock = Lock()
        self._futures: OrderedDict[str, Future[Any]] = OrderedDict()

    def holds(self, key: str) -> bool:
        with self._lock:
            future = self._futures.get(key)
        return future is not None and future.done() and future.exception() is None

    def clear(self) -> None:
        """Drop all values; what is being made is kept."""
        with self._lock:
            for key, future in list(self._futures.items()):
                if future.done():
                    del self._futures[key]
                    self._size -= future.result().memory_size_bytes

    def get(self, key: str, make: Callable[[], Any]) -> Any:
        with self._lock:
            future = self._futures.get(key)
            owner = future is None
            if future is None:
                future = self._futures[key] = Future()
            self._futures.move_to_end(key)
        if owner:
            self._fill(key, future, make)
        return future.result()

    def _fill(self, key: str, future: Future[Any], make: Callable[[], Any]) -> None:
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                del self._futures[key]
            future.set_exception(error)
            return
        with self._lock:
            future.set_result(value)
            self._size += value.memory_size_bytes
            self._shrink(key)

    def _shrink(self, keep: str) -> None:
        for key, future in list(self._futures.items()):
            if self._size <= self._limit:
                return
            if key != keep and future.done():
                self._size -= future.result().memory_size_bytes
                del self._futures[key]


def _writable(vocabulary: Sequence[bytes]) -> frozenset[int]:
    return frozenset(token for token, text in enumerate(vocabulary) if text)


def _json_rules(schema: str) -> Rules:
    """The canonical grammar of a JSON Schema.

    Raises:
        RequestError: no finite value satisfies it.
    """
    values = ListedValues(schema)
    written = xgrammar.Grammar.from_json_schema(values.hidden, any_whitespace=False, separators=(", ", ": "))
    rules = split_counts(end_multiples(values.shown(harden(read(str(written))))))
    _require_bounded(rules, plain_json=True)
    return rules


def _caller_rules(grammar: str) -> Rules:
    """The rules of a caller's EBNF.

    Raises:
        RequestError: it holds what cannot be enforced, or derives no finite text.
    """
    rules = split_counts(tame(read(str(xgrammar.Grammar.from_ebnf(grammar)))))
    _require_bounded(rules, plain_json=False)
    return rules


def _of_pattern(pattern: str) -> str:
    """EBNF of a regular expression: the library's own reader lets bytes through that are no text, and look-ahead.

    Raises:
        RequestError: it cannot be enforced, or nothing matches it.
    """
    try:
        grammar = of_regex(with_distinct_rounds(parse(pattern, whole=True)))
    except PatternError as error:
        raise RequestError(f"the pattern cannot be enforced: {error}", code=codes.UNSUPPORTED_SCHEMA) from None
    if grammar is None:
        raise _admits_nothing()
    return grammar


def _require_bounded(rules: Rules, *, plain_json: bool) -> None:
    """Refuse what no answer can fulfil. subtle: the library writes a position's *whole* forced text when asked for it,
    on the engine's thread: twenty ``$ref`` that each stand twice force megabytes, thirty would force gigabytes."""
    lengths = shortest(rules, plain_json=plain_json)
    if lengths.get("root", inf) == inf:
        raise _admits_nothing()
    if (longest := longest_forced(rules, lengths)) > _MAX_FORCED:
        raise RequestError(
            f"a part of the constraint needs at least {longest:.3g} characters and {_MAX_FORCED} are supported; look "
            "for nested minItems, long constants and $ref that stand several times",
            code=codes.REPETITION_TOO_LARGE,
        )


def _admits_nothing() -> RequestError:
    return RequestError(
        "no finite output satisfies the constraint; look for what requires itself",
        code=codes.UNSUPPORTED_SCHEMA,
    )
