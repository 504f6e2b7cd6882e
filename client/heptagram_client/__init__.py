"""The Python client: one stream per request, folded or streamed, synchronous or asyncio, and the command line.

>>> from heptagram_client import Client
>>> with Client("localhost:8001") as client:                                        # doctest: +SKIP
...     print(client.complete({"messages": [{"role": "user", "content": "Hello"}]}).content)
"""

from __future__ import annotations

from heptagram_client.async_client import AsyncClient, AsyncEventStream
from heptagram_client.choices import fold_choices, split_choices
from heptagram_client.client import Client, EventStream
from heptagram_client.errors import (
    ConnectError,
    GenerationError,
    HeptagramClientError,
    IdleTimeoutError,
    OverloadedError,
    ProtocolError,
    RequestRefusedError,
    ServerError,
)
from heptagram_client.fold import ChatMessage, Folder, ToolCall, fold

__all__ = [
    "AsyncClient",
    "AsyncEventStream",
    "ChatMessage",
    "Client",
    "ConnectError",
    "EventStream",
    "Folder",
    "GenerationError",
    "HeptagramClientError",
    "IdleTimeoutError",
    "OverloadedError",
    "ProtocolError",
    "RequestRefusedError",
    "ServerError",
    "ToolCall",
    "fold",
    "fold_choices",
    "split_choices",
]
