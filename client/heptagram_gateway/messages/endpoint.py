"""``POST /v1/messages`` and ``POST /v1/messages/count_tokens``."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from heptagram_gateway.answer import collect, seen, send_end, send_json, send_stream, until_gone
from heptagram_gateway.json_body import read_object
from heptagram_gateway.messages.answer import Head, message_of
from heptagram_gateway.messages.encoder import MessageEncoder
from heptagram_gateway.messages.request import MessagesAsked, read_counted, read_messages
from heptagram_gateway.models import Target
from heptagram_gateway.record import Record, record_of
from heptagram_gateway.services import Services
from heptagram_gateway.sharing import conversation_of


class Messages:
    """An ASGI application of one path. Everything that fails before ``start`` is raised as an ApiError."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        services, record = self._services, record_of(scope)
        record.endpoint = "messages"
        with services.gate.admit():
            body = await read_object(scope, receive, services.body_limits)
            asked = read_messages(body)
            services.unknown.settle(asked.fields)
            record.stream = asked.stream
            target = await services.models.find_chat(asked.model, conversation_of(body))
            record.model = target.id
            with asked.places.told():
                await until_gone(receive, self._answer(asked, target, send, record))

    async def _answer(self, asked: MessagesAsked, target: Target, send: Send, record: Record) -> None:
        async with self._services.engine.run(asked.request, target) as generation:
            head = Head(target.id, generation.start.prompt_tokens, asked.thinking)
            if asked.stream:
                events = asked.places.each(seen(generation, record))
                keep_alive = self._services.config.keep_alive
                await send_stream(send, events, MessageEncoder(head), keep_alive=keep_alive, record=record)
            else:
                whole = message_of(head, await collect(generation, record))
        await (send_end(send) if asked.stream else send_json(send, 200, whole))


class CountTokens:
    """An ASGI application of one path. The engine counts: the request runs for one token. So it needs a place, what
    would be refused is refused here too, and the prompt is in the prefix cache when the request itself comes.

    subtle: it is not left at ``start``, for tritonserver (2.51) may hold a model whose last response meets a cancel.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        services, record = self._services, record_of(scope)
        record.endpoint = "count_tokens"
        with services.gate.admit():
            body = await read_object(scope, receive, services.body_limits)
            asked = read_counted(body)
            services.unknown.settle(asked.fields)
            target = await services.models.find_chat(asked.model, conversation_of(body))
            record.model = target.id
            with asked.places.told():
                count = await until_gone(receive, self._count(asked, target, record))
            await send_json(send, 200, {"input_tokens": count})

    async def _count(self, asked: MessagesAsked, target: Target, record: Record) -> int:
        async with self._services.engine.run(asked.request, target) as generation:
            await collect(generation, record)
            return generation.start.prompt_tokens
