"""Which version answers a conversation while requests are shared among several. Pure.

A conversation stays with its version for as long as that keeps its share: what is hashed is the same in each of its
requests. That is the id which the client gives it in ``metadata``; without one, what the client says of itself and the
first message of the user. The system prompt is left out, for it often tells the time. What the client says of itself
does not count alone, for an application may give all its conversations one ``user`` or ``prompt_cache_key``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Final

_IDS: Final = ("conversation_id", "session_id", "thread_id")


def choose(weights: Mapping[str, int], conversation: str) -> str:
    """A version, each as likely as its weight says (weighted rendezvous hashing).

    Where weights change, only conversations of versions that have less than before move, to those that have more. At
    least one weight is above 0.
    """
    return max(
        (version for version in weights if weights[version]), key=lambda version: _score(version, weights, conversation)
    )


def _score(version: str, weights: Mapping[str, int], conversation: str) -> float:
    digest = hashlib.sha256(f"{version} {conversation}".encode()).digest()
    drawn = (int.from_bytes(digest[:8], "big") >> 12) + 0.5  # 52 bits: the quotient is never rounded to 1
    return -weights[version] / math.log(drawn / 2**52)


def conversation_of(body: Mapping[str, Any]) -> str:
    """What is the same in all requests of a conversation, of the body of any API."""
    metadata = body.get("metadata")
    told = metadata if isinstance(metadata, dict) else {}
    for key in _IDS:
        if isinstance(told.get(key), str):
            return json.dumps([key, told[key]])
    client = [body.get("prompt_cache_key"), body.get("user"), told.get("user_id")]
    return json.dumps([*client, _opening(body)])


def _opening(body: Mapping[str, Any]) -> Any:
    """The user's first message; of a completion, which is no conversation, the prompt."""
    turns = body.get("messages") or body.get("input")
    if not isinstance(turns, list):
        return turns or body.get("prompt")
    users = (turn for turn in turns if isinstance(turn, dict) and turn.get("role") == "user")
    return _text(next(users, {}).get("content"))


def _text(content: Any) -> Any:
    """The text of a message in whatever form: parts are marked for the cache in one request and not in the next."""
    if not isinstance(content, list):
        return content
    return "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
