"""Log probabilities of committed tokens, from numbers to wire entries. No torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from heptagram_wire.events import TokenLogprob, TopLogprob


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token, its log probability, and the likeliest tokens of its place with theirs, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def told(scored: ScoredToken, piece: Callable[[int], bytes]) -> TokenLogprob:
    """The entry as clients read it; ``piece`` gives the bytes of a token, which may end within a character."""
    top = tuple(TopLogprob(*_shown(token, logprob, piece)) for token, logprob in scored.top)
    return TokenLogprob(*_shown(scored.token, scored.logprob, piece), top)


def _shown(token: int, logprob: float, piece: Callable[[int], bytes]) -> tuple[str, int, float, tuple[int, ...] | None]:
    raw = piece(token)
    return raw.decode("utf-8", errors="replace"), token, logprob, tuple(raw) if raw else None
