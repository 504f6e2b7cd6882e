"""Log probabilities of text completions: OpenAI's legacy object, whole and in pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Completion
from tritonclient.grpc import InferResult, service_pb2

from heptagram_client.errors import ProtocolError, reported_error
from heptagram_client.transports.base import TextPiece, TextResponse
from heptagram_client.transports.tensors import read_completion as read_response
from heptagram_gateway.chat.envelope import Envelope
from heptagram_gateway.completions.answer import TextEncoder, whole
from heptagram_gateway.completions.logprobs import LogprobsWriter
from heptagram_gateway.completions.run import Piece
from heptagram_wire import tensors as names
from heptagram_wire.codec import encode_logprobs
from heptagram_wire.errors import WireError
from heptagram_wire.events import TokenLogprob, TopLogprob
from tests.gateway.front import Running, data_of
from tests.gateway.scripted import ScriptedServer, told
from tests.gateway.test_completions import answering
from tests.gateway.test_errors import error_of

ENVELOPE = Envelope("cmpl-1", "chat", "chat", created=1)


def token(raw: bytes, id: int, logprob: float, *top: TopLogprob) -> TokenLogprob:
    return TokenLogprob(raw.decode(errors="replace"), id, logprob, tuple(raw) or None, top)


def other(raw: bytes, id: int, logprob: float) -> TopLogprob:
    return TopLogprob(raw.decode(errors="replace"), id, logprob, tuple(raw) or None)


HI = token(b"Hi", 1, -0.5, other(b"Hi", 1, -0.5), other(b"", 0, -1.5))
HALF = token(b" \xf0\x9f", 2, -2.0, other(b"\xf0\x9f", 7, -0.25), other(b"\xf0", 8, -0.75))
REST = token(b"\x98\x80!", 3, -3.0)


def test_the_object() -> None:
    """Names never collide: half a character as OpenAI writes it, a token without a text by its id."""
    assert LogprobsWriter().write([HI, HALF, REST]) == {
        "tokens": ["Hi", r"bytes: \xf0\x9f", r"bytes:\x98\x80!"],
        "token_logprobs": [-0.5, -2.0, -3.0],
        "top_logprobs": [
            {"Hi": -0.5, "token_id:0": -1.5},
            {r"bytes:\xf0\x9f": -0.25, r"bytes:\xf0": -0.75, r"bytes: \xf0\x9f": -2.0},
            {r"bytes:\x98\x80!": -3.0},
        ],
        "text_offset": [0, 2, 3],
    }


def test_of_two_tokens_with_one_text_the_likelier_is_told() -> None:
    [top] = LogprobsWriter().write([token(b"a", 2, -4.0, other(b"a", 1, -0.5))])["top_logprobs"]
    assert top == {"a": -0.5}


def cut(raw: bytes, cuts: Iterable[int]) -> list[TokenLogprob]:
    places = sorted({0, len(raw), *(place for place in cuts if place < len(raw))})
    return [token(raw[begin:end], id, -1.0) for id, (begin, end) in enumerate(pairwise(places))]


@given(st.text(max_size=12), st.lists(st.integers(0, 40)), st.data())
def test_offsets_and_pieces(text: str, cuts: list[int], data: st.DataObject) -> None:
    """Cut and chunked anyhow: each whole token stands at its offset, the stream adds up to the whole."""
    entries = cut(text.encode(), cuts)
    pieces: list[Piece] = []
    left = list(entries)
    while left:
        taken = data.draw(st.integers(1, len(left)))
        pieces.append(Piece("", logprobs=tuple(left[:taken])))
        del left[:taken]
    placed = [(0, piece) for piece in [*pieces, Piece(text, "stop", 1, len(entries))]]
    answer = whole(ENVELOPE, (), 1, placed, logprobs=True)
    Completion.model_validate(answer, strict=True)
    object = answer["choices"][0]["logprobs"]
    for entry, offset in zip(entries, object["text_offset"], strict=True):
        if "\ufffd" not in entry.token:
            assert text[offset:].startswith(entry.token)
    streamed: dict[str, list[Any]] = {key: [] for key in object}
    for chunk in encode(placed):
        for key, values in (chunk["choices"][0]["logprobs"] or {}).items():
            streamed[key] += values
    assert streamed == object


def encode(placed: Sequence[tuple[int, Piece]]) -> list[Any]:
    encoder = TextEncoder(ENVELOPE, (), usage=False)
    messages = [message for each in placed for message in encoder.feed(each)]
    return data_of(b"".join(messages).decode())


def test_null_when_not_asked_and_lists_when_asked() -> None:
    placed = [(0, Piece("a", "stop", 1, 1))]
    assert whole(ENVELOPE, (), 1, placed)["choices"][0]["logprobs"] is None
    assert encode(placed)[0]["choices"][0]["logprobs"] is None
    assert whole(ENVELOPE, (), 1, placed, logprobs=True)["choices"][0]["logprobs"] == {
        "tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []
    }  # fmt: skip


@pytest.mark.parametrize("wanted", [0, 2])
def test_several_prompts(front: Running, server: ScriptedServer, wanted: int) -> None:
    server.texts = answering(told("Hi", None, 3, 1, (HI,)), told(" ", None, 3, 2, (HALF, REST)), told("", "stop"))
    with front.openai() as client:
        asked: Any = {"model": "chat", "prompt": ["a", "b"], "logprobs": wanted}
        answer = client.completions.create(**asked)
        chunks = [*client.completions.create(**asked, stream=True)]
    assert f'"logprobs": {wanted}' in server.requests[0][1]["sampling_parameters"]
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.text_offset == [0, 2, 3]
    for place in (0, 1):
        listed = [chunk.choices[0].logprobs for chunk in chunks if chunk.choices[0].index == place]
        assert [logprobs and logprobs.text_offset for logprobs in listed] == [None, [0], [2, 3], None]


@pytest.mark.parametrize("stream", [True, False])
def test_the_prompt_has_none(front: Running, server: ScriptedServer, stream: bool) -> None:
    answer = front.post("/v1/completions", prompt="a", echo=True, logprobs=0, stream=stream)
    assert answer.status_code == 400
    assert (error_of(answer)["param"], error_of(answer)["code"]) == ("echo", "unsupported")
    assert not server.requests


@pytest.mark.parametrize("stream", [True, False])
def test_what_the_backend_refuses_is_a_status(front: Running, server: ScriptedServer, stream: bool) -> None:
    async def refusing(inputs: dict[str, Any]) -> AsyncIterator[TextResponse]:
        assert '"n": 200' in inputs["sampling_parameters"]
        raise reported_error(WireError("too_many_choices", "200 answers; send several requests", "n"))
        yield told()

    server.texts = refusing
    for field, code in (("n", "too_many_choices"), ("best_of", "unsupported")):
        answer = front.post("/v1/completions", prompt="a", stream=stream, **{field: 200})
        assert answer.status_code == 400
        assert (error_of(answer)["param"], error_of(answer)["code"]) == (field, code)


def response(logprobs: Sequence[str], texts: Sequence[str]) -> InferResult:
    """One of Triton's with these outputs."""
    message = service_pb2.ModelInferResponse()
    for name, values in ((names.LOGPROBS, logprobs), (names.TEXT_OUTPUT, texts)):
        message.outputs.add(name=name, datatype="BYTES", shape=[len(values)])
        raw = [value.encode() for value in values]
        message.raw_output_contents.append(b"".join(np.uint32(len(value)).tobytes() + value for value in raw))
    return InferResult(message)


def test_from_the_tensors() -> None:
    one, other = encode_logprobs([HI, HALF]), encode_logprobs([])
    assert read_response(response([one], ["Hi"])) == TextResponse((TextPiece("Hi", logprobs=(HI, HALF)),))
    several = read_response(response([other, one], ["", "Hi"]))
    assert several.pieces == (TextPiece(), TextPiece("Hi", logprobs=(HI, HALF)))
    assert read_response(response([], [])).pieces == ()
    with pytest.raises(ProtocolError, match="log probabilities"):
        read_response(response(['[{"token": "a"}]'], ["a"]))
    with pytest.raises(ProtocolError, match="numbers of answers"):
        read_response(response([one, one], ["Hi"]))
