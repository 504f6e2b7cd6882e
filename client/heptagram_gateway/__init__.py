"""The OpenAI-compatible HTTP front over :mod:`heptagram_client`: a process of its own, without torch or tokenizer.

Another API over the same core is an endpoint of some twenty lines; :mod:`heptagram_gateway.chat.endpoint` shows it::

    class Responses:
        def __init__(self, services: Services) -> None:
            self._services = services

        async def __call__(self, scope, receive, send) -> None:            # ASGI, added to ``app.POSTS``
            services, record = self._services, record_of(scope)
            record.endpoint = "responses"                                  # label of metrics and access log
            with services.gate.admit():                                    # 429, or 503 while it drains
                body = await read_object(scope, receive, services.body_limits)      # 400, 408, 413
                asked = read_responses(body)                               # pure: to a chat request
                target = await services.models.find_chat(asked.model, conversation_of(body))  # 404
                record.model = target.id
                await until_gone(receive, self._answer(asked, target, send, record))

        async def _answer(self, asked, target, send, record) -> None:
            async with services.engine.run(asked.request, target) as generation:    # waits for ``start``
                encoder = ResponsesEncoder(...)                            # sans-I/O, see ``answer.Encoder``
                await send_stream(send, seen(generation, record), encoder, keep_alive=..., record=record)
            await send_end(send)                # behind the block: the end of the response looks like a disconnect

``Engine.run`` takes a chat request as a dict (:mod:`heptagram_wire.requests`) and gives a ``Generation``: its ``start``
and, by ``async for``, its events up to the only ``Finish``. Every fault is an ``ApiError`` (:mod:`.errors`): raised
before the headers it becomes a status and an error object, later ``send_stream`` gives it to ``Encoder.fail``. An API
with another error object registers its path in :data:`heptagram_gateway.boundary.SHAPES`. Leaving ``run`` by any way
cancels the request; ``until_gone`` leaves it when the client does.
"""
