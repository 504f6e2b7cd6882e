"""Log probabilities in the form of OpenAI's text completions. No I/O."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from heptagram_wire.events import TokenLogprob, TopLogprob


class LogprobsWriter:
    """One answer's.

    A token's ``text_offset`` is the place in the answer of the first character that it takes part in, counted in the
    tokens: a stop string is cut from the text, but its tokens are listed.
    """

    def __init__(self) -> None:
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
        """The object of the next tokens."""
        return {
            "tokens": [_name(entry) for entry in entries],
            "token_logprobs": [entry.logprob for entry in entries],
            "top_logprobs": [_top(entry) for entry in entries],
            "text_offset": [self._place(entry) for entry in entries],
        }

    def _place(self, entry: TokenLogprob) -> int:
        place = self._offset
        self._offset += len(self._decoder.decode(bytes(entry.bytes or ())))
        return place


def _top(entry: TokenLogprob) -> dict[str, float]:
    """The likeliest tokens, best first, and the chosen one, which may be none of them; of one text the likelier."""
    found: dict[str, float] = {}
    tokens: tuple[TopLogprob | TokenLogprob, ...] = (*entry.top_logprobs, entry)
    for token in tokens:
        found.setdefault(_name(token), token.logprob)
    return found


def _name(token: TokenLogprob | TopLogprob) -> str:
    """The token as a key, which must not be that of another one.

    Half a character is written as OpenAI's completions do (``bytes:\\xe2\\x80``), a token without a text as vLLM's
    ``return_tokens_as_token_ids`` does.
    """
    if token.bytes is None:
        return f"token_id:{token.token_id}"
    raw = bytes(token.bytes)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + repr(raw)[2:-1]
