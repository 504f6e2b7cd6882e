"""``POST /v1/responses``."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from heptagram_gateway.answer import collect, seen, send_end, send_json, send_stream, until_gone
from heptagram_gateway.json_body import read_object
from heptagram_gateway.models import Target
from heptagram_gateway.record import Record, record_of
from heptagram_gateway.responses.encoder import ResponseEncoder
from heptagram_gateway.responses.request import ResponsesAsked, read_responses
from heptagram_gateway.responses.response import Head, response_of
from heptagram_gateway.services import Services
from heptagram_gateway.sharing import conversation_of


class Responses:
    """An ASGI application of one path. Everything that fails before ``start`` is raised as an ApiError."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        services, record = self._services, record_of(scope)
        record.endpoint = "responses"
        with services.gate.admit():
            body = await read_object(scope, receive, services.body_limits)
            asked = read_responses(body)
            services.unknown.settle(asked.fields)
            record.stream = asked.stream
            target = await services.models.find_chat(asked.model, conversation_of(body))
            record.model = target.id
            with asked.places.told():
                await until_gone(receive, self._answer(asked, target, send, record))

    async def _answer(self, asked: ResponsesAsked, target: Target, send: Send, record: Record) -> None:
        head = Head(target.id, asked.given, asked.tools.names)
        async with self._services.engine.run(asked.request, target) as generation:
            if asked.stream:
                events = asked.places.each(seen(generation, record))
                keep_alive = self._services.config.keep_alive
                await send_stream(send, events, ResponseEncoder(head), keep_alive=keep_alive, record=record)
            else:
                whole = response_of(head, await collect(generation, record))
        await (send_end(send) if asked.stream else send_json(send, 200, whole))
