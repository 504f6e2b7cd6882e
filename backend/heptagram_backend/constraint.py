"""What a request is constrained to, and what a grammar must offer. No grammar library is imported here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

ConstraintKind = Literal["structural_tag", "json_schema", "regex", "ebnf"]


@dataclass(frozen=True, slots=True)
class ConstraintSpec:
    """A constraint as text: compiled grammars do not travel, so the source does, and its digest keys the cache."""

    kind: ConstraintKind
    source: str

    @classmethod
    def structural_tag(cls, tag: Mapping[str, Any]) -> ConstraintSpec:
        return cls("structural_tag", json.dumps(tag, ensure_ascii=False, separators=(",", ":")))

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any]) -> ConstraintSpec:
        """The whole answer is one value of ``schema``, which the walker made."""
        return cls("json_schema", json.dumps(schema, ensure_ascii=False, separators=(",", ":")))

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.kind}\0{self.source}".encode()).hexdigest()


class Grammar(Protocol):
    """One request's matcher, owned by its sequence. It advances on committed tokens; planning rolls back exactly."""

    @property
    def terminated(self) -> bool:
        """A stop token was accepted; nothing may be asked any more."""

    @property
    def completed(self) -> bool:
        """The text so far is a whole sentence of the grammar (a stop token is allowed, if nothing else)."""

    def fill(self, row: NDArray[np.int32]) -> bool:
        """Write the packed mask of the next token into ``row`` (int32 [ceil(V/32)], bit ``i%32`` of word ``i//32``).

        Returns:
            False when every token is allowed and the row need not be applied; the row is then not written.
        """

    def accept(self, token: int) -> bool:
        """Advance by one token; False (and no change) when it is not allowed."""

    def accept_text(self, text: bytes) -> bool:
        """Advance by text, as one step of rollback; False (and no change) when it is not allowed."""

    def rollback(self, count: int) -> None:
        """Take back the last ``count`` accepted steps."""

    def forced_text(self) -> bytes:
        """The longest text that every continuation starts with; empty when there is none."""

    def close(self) -> None:
        """Release the matcher; idempotent."""


class GrammarFactory(Protocol):
    """Compiles constraints for one vocabulary, once per digest, and makes matchers of them."""

    def compile(self, spec: ConstraintSpec) -> object:
        """Compile on the calling thread; cached by digest.

        Raises:
            RequestError: the constraint does not compile or admits nothing.
        """

    def holds(self, spec: ConstraintSpec) -> bool:
        """Whether ``spec`` is compiled already, so that a matcher costs next to nothing."""

    def forget(self) -> None:
        """Drop what is compiled. Matchers keep theirs."""

    def matcher(self, spec: ConstraintSpec) -> Grammar:
        """A fresh matcher at the start of ``spec``; compiles it when it is not cached."""

    @property
    def vocab_width(self) -> int | None:
        """V of the masks that its matchers fill; ``None`` where it refuses every constraint."""

    @property
    def live(self) -> int:
        """Matchers that are not closed yet."""
