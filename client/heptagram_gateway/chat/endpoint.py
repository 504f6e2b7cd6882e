"""``POST /v1/chat/completions``."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from heptagram_gateway.answer import collect, seen, send_end, send_json, send_stream, until_gone
from heptagram_gateway.chat.chunks import ChunkEncoder
from heptagram_gateway.chat.envelope import envelope_of
from heptagram_gateway.chat.message import completion_of
from heptagram_gateway.chat.request import ChatAsked, read_chat
from heptagram_gateway.json_body import read_object
from heptagram_gateway.models import Target
from heptagram_gateway.record import Record, record_of
from heptagram_gateway.services import Services
from heptagram_gateway.sharing import conversation_of


class ChatCompletions:
    """An ASGI application of one path. Everything that fails before ``start`` is raised as an ApiError."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        services, record = self._services, record_of(scope)
        record.endpoint = "chat"
        with services.gate.admit():
            body = await read_object(scope, receive, services.body_limits)
            asked = read_chat(body)
            services.unknown.settle(asked.fields)
            record.stream = asked.stream
            target = await services.models.find_chat(asked.model, conversation_of(body))
            record.model = target.id
            await until_gone(receive, self._answer(asked, target, send, record))

    async def _answer(self, asked: ChatAsked, target: Target, send: Send, record: Record) -> None:
        async with self._services.engine.run(asked.fields.passed, target) as generation:
            envelope = envelope_of(generation)
            if asked.stream:
                encoder = ChunkEncoder(envelope, usage=asked.usage)
                keep_alive = self._services.config.keep_alive
                await send_stream(send, seen(generation, record), encoder, keep_alive=keep_alive, record=record)
            else:
                whole = completion_of(envelope, await collect(generation, record), logprobs=asked.logprobs)
        await (send_end(send) if asked.stream else send_json(send, 200, whole))
