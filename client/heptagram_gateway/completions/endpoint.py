"""``POST /v1/completions``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from starlette.types import Receive, Scope, Send

from heptagram_gateway.answer import send_end, send_json, send_stream, until_gone
from heptagram_gateway.chat.envelope import Envelope, new_id
from heptagram_gateway.completions.answer import Placed, TextEncoder, whole
from heptagram_gateway.completions.request import CompletionAsked, read_completion
from heptagram_gateway.completions.run import Piece, merge
from heptagram_gateway.json_body import read_object
from heptagram_gateway.models import Target
from heptagram_gateway.record import Record, record_of
from heptagram_gateway.services import Services
from heptagram_gateway.sharing import conversation_of


class Completions:
    """An ASGI application of one path. Each prompt of a list is a request of its own to the ensemble."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        services, record = self._services, record_of(scope)
        record.endpoint = "completions"
        with services.gate.admit():
            body = await read_object(scope, receive, services.body_limits)
            asked = read_completion(body)
            services.unknown.settle(asked.fields)
            record.stream = asked.stream
            target = await services.models.find_completions(asked.model, conversation_of(body))
            record.model = target.id
            with services.gate.admit(len(asked.prompts) - 1):
                await until_gone(receive, self._answer(asked, target, send, record))

    async def _answer(self, asked: CompletionAsked, target: Target, send: Send, record: Record) -> None:
        envelope = Envelope(new_id("cmpl"), target.id, target.triton_name)
        echo = asked.prompts if asked.echo else ()
        async with AsyncExitStack() as stack:
            streams = [
                await stack.enter_async_context(self._services.texts.run(inputs, target)) for inputs in asked.inputs
            ]
            n = streams[0].n
            pieces = _seen([stream.pieces for stream in streams], record)
            if asked.stream:
                encoder = TextEncoder(envelope, echo, n=n, usage=asked.usage)
                keep_alive = self._services.config.keep_alive
                await send_stream(send, pieces, encoder, keep_alive=keep_alive, record=record)
            else:
                found = [placed async for placed in pieces]
                answer = whole(envelope, echo, len(asked.prompts), found, n=n, logprobs=asked.logprobs)
        await (send_end(send) if asked.stream else send_json(send, 200, answer))


async def _seen(streams: list[AsyncIterator[Piece]], record: Record) -> AsyncIterator[Placed]:
    counted: set[int] = set()
    async for place, piece in merge(streams):
        if place not in counted:
            counted.add(place)
            record.prompt_tokens += piece.prompt_tokens
        if piece.text and record.first_event_s is None:
            record.first_event_s = record.elapsed_s
        record.completion_tokens += piece.completion_tokens
        record.finish_reason = piece.reason or record.finish_reason
        yield place, piece
