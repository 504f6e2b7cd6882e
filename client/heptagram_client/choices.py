"""Several answers to one request, from one stream: each as if it had come alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from heptagram_client.errors import ProtocolError
from heptagram_client.fold import ChatMessage, fold
from heptagram_wire.events import ChoiceEnd, Event, Failure, Finish, Ping, Start, UnknownEvent, Usage

_OF_ALL = Start | Ping | UnknownEvent


def fold_choices(events: Iterable[Event]) -> tuple[ChatMessage, ...]:
    """Fold all events of a stream; one message for each of the ``n`` answers, in order.

    ``usage`` of each has the prompt and the tokens of that answer, ``stats`` are those of the whole request.

    Raises:
        GenerationError: the stream holds a ``failure``.
        ProtocolError: no terminal event, or events that do not fit each other.
    """
    return tuple(map(fold, split_choices(events)))


def split_choices(events: Iterable[Event]) -> list[list[Event]]:
    """The streams that the answers would have been; with one answer the stream as it is.

    Raises:
        ProtocolError: an answer that goes on behind its end, or that has none.
    """
    parts: dict[int, list[Event]] = {}
    ends: dict[int, ChoiceEnd] = {}
    shared: list[Event] = []
    last: list[Event] = []
    for event in events:
        if isinstance(event, Finish | Failure) or last:
            last.append(event)
        elif isinstance(event, _OF_ALL):
            shared.append(replace(event, choice=0))
        elif event.choice in ends:
            raise ProtocolError(f"choice {event.choice} goes on behind its end")
        elif isinstance(event, ChoiceEnd):
            ends[event.choice] = event
        else:
            parts.setdefault(event.choice, []).append(replace(event, choice=0))
    if not ends and parts.keys() <= {0}:
        return [[*shared, *parts.get(0, ()), *last]]
    count = max([*parts, *ends]) + 1
    return [[*shared, *parts.get(place, ()), *_end(last, ends.get(place))] for place in range(count)]


def _end(last: list[Event], end: ChoiceEnd | None) -> list[Event]:
    """The end of the request as that of one answer."""
    if not last or not isinstance(last[0], Finish):
        return last
    if end is None:
        raise ProtocolError("`finish` came before the end of each choice")
    usage = Usage(last[0].usage.prompt_tokens, end.completion_tokens)
    return [replace(last[0], reason=end.reason, usage=usage), *last[1:]]
