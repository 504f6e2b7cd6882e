"""From the events of a generation to its blocks, one after the other: reasoning, texts and calls. No I/O.

The newer APIs tell an answer as a list of such blocks; each is closed before the next one is opened::

    steps = (Opened Grown* Closed)* (Opened Grown*)? Ended

A call that the end of the answer has cut is never closed, for what is told to be done gets run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, NoReturn

from heptagram_client import ProtocolError
from heptagram_gateway.errors import from_client
from heptagram_wire.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    Finish,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
)

Kind = Literal["reasoning", "text", "call"]


class BlockState(Enum):
    OPEN = "open"
    DONE = "done"
    CUT = "cut"


@dataclass(slots=True)
class Block:
    """``index`` counts from 0; ``call`` is there where the kind is ``call``, whose text is its arguments. Only a text
    has ``logprobs``."""

    index: int
    kind: Kind
    call: CallStart | None = None
    state: BlockState = BlockState.OPEN
    pieces: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def told(self) -> bool:
        """Whether it belongs to the finished answer; a cut call does not."""
        return self.state is BlockState.DONE or (self.state is BlockState.CUT and self.call is None)


@dataclass(frozen=True, slots=True)
class Opened:
    block: Block


@dataclass(frozen=True, slots=True)
class Grown:
    """``text`` is not empty."""

    block: Block
    text: str
    logprobs: Sequence[TokenLogprob] = ()


@dataclass(frozen=True, slots=True)
class Closed:
    """The block is done, or a text that was cut."""

    block: Block


@dataclass(frozen=True, slots=True)
class Ended:
    finish: Finish


Step = Opened | Grown | Closed | Ended


class Blocks:
    """One answer's. Whatever comes in, the steps come in order, or an ApiError (502) says that events do not fit."""

    def __init__(self) -> None:
        self.all: list[Block] = []

    def feed(self, event: Event) -> Iterator[Step]:
        """The steps of one event; none for a heartbeat."""
        match event:
            case TextDelta() if event.text:
                yield from self._piece("text", event.text, event.logprobs or ())
            case TextDelta() if self._open is not None and self._open.kind == "text":
                self._open.logprobs += event.logprobs or ()
            case ReasoningDelta() if event.text:
                yield from self._piece("reasoning", event.text)
            case CallStart():
                yield from self._begin("call", event)
            case ArgumentsDelta():
                block = self._call(event.index)
                if event.text:
                    yield self._grow(block, event.text)
            case CallEnd():
                yield self._close(self._call(event.index), BlockState.DONE)
            case Finish():
                yield from self._end(event)

    @property
    def told(self) -> list[Block]:
        return [block for block in self.all if block.told]

    @property
    def cut(self) -> bool:
        return any(block.state is BlockState.CUT for block in self.all)

    @property
    def _open(self) -> Block | None:
        return self.all[-1] if self.all and self.all[-1].state is BlockState.OPEN else None

    def _piece(self, kind: Kind, text: str, logprobs: Sequence[TokenLogprob] = ()) -> Iterator[Step]:
        block = self._open
        if block is None or block.kind != kind:
            yield from self._begin(kind)
        yield self._grow(self.all[-1], text, logprobs)

    def _begin(self, kind: Kind, call: CallStart | None = None) -> Iterator[Step]:
        block = self._open
        if block is not None and block.call is not None:
            _refuse(f"call {block.call.index} has not ended when something else begins")
        if call is not None and any(each.call is not None and each.call.index == call.index for each in self.all):
            _refuse(f"call {call.index} was started twice")
        if block is not None:
            yield self._close(block, BlockState.DONE)
        self.all.append(Block(len(self.all), kind, call))
        yield Opened(self.all[-1])

    def _call(self, index: int) -> Block:
        block = self._open
        if block is None or block.call is None or block.call.index != index:
            _refuse(f"an event belongs to call {index}, which is not running")
        return block

    def _grow(self, block: Block, text: str, logprobs: Sequence[TokenLogprob] = ()) -> Step:
        block.pieces.append(text)
        block.logprobs += logprobs
        return Grown(block, text, logprobs)

    def _close(self, block: Block, state: BlockState) -> Step:
        block.state = state
        return Closed(block)

    def _end(self, finish: Finish) -> Iterator[Step]:
        block = self._open
        if finish.reason == "tool_calls" and (not any(each.call for each in self.all) or (block and block.call)):
            _refuse("`finish` says tool_calls, but there is no call or one that is cut")
        if block is not None and block.call is not None:
            block.state = BlockState.CUT
        elif block is not None:
            yield self._close(block, BlockState.CUT if finish.reason == "length" else BlockState.DONE)
        yield Ended(finish)


def _refuse(message: str) -> NoReturn:
    raise from_client(ProtocolError(message))
