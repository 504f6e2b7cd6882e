"""The first step of a chat: from the text of a request to a plan that ``generate`` can run.

Thread-safe: a preprocessor holds nothing of a request. Neither torch nor a grammar library is imported.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from heptagram_backend.conversation import ChatRequest
from heptagram_backend.errors import ReleaseError, RequestError
from heptagram_backend.formats import load_format
from heptagram_backend.formats.base import Constraints, PromptEncoding
from heptagram_backend.generation import DraftSource, GenerationRequest, OutputSpec
from heptagram_backend.release import Release
from heptagram_backend.requests import RequestLimits, enforce, parse_chat_request
from heptagram_backend.schema import checkable
from heptagram_backend.tokenizer import CheckpointTokenizer
from heptagram_wire import errors as codes


class Preprocessor:
    """Reads requests for one version.

    Args:
        release: the version's ``release.yaml``.
        checkpoint: the resolved folder of its checkpoint.
        limits: bounds of one request.

    Raises:
        ReleaseError: the format or the tokenizer is not there, or the vocabulary is not the release's.
    """

    def __init__(self, release: Release, checkpoint: Path, limits: RequestLimits | None = None) -> None:
        self._release = release
        self._limits = limits or RequestLimits()
        self._format = load_format(release.format)
        self._tokenizer = CheckpointTokenizer(checkpoint)
        self._vocabulary = self._tokenizer.vocabulary_hash
        if release.vocabulary not in (None, self._vocabulary):
            raise ReleaseError(
                f"vocabulary: the release was written for {release.vocabulary}, but the tokenizer of {checkpoint} is "
                f"{self._vocabulary}; point `checkpoint` at the right one, or write the release anew"
            )

    def prepare(self, raw: bytes | str) -> GenerationRequest:
        """Parse, validate, encode and constrain one request.

        Raises:
            RequestError: the request is wrong or cannot be served; nothing else is ever raised for a request's sake.
        """
        request = enforce(parse_chat_request(raw, self._limits, self._release.served_model_name))
        prompt = self._format.encode(request, self._tokenizer)
        constraints = self._format.constrain(request)
        self._check(request, constraints)
        return self._plan(request, prompt, constraints)

    def _check(self, request: ChatRequest, constraints: Constraints) -> None:
        if request.ignore_eos and (constraints.constraint or constraints.trigger):
            raise RequestError(
                "a constrained answer ends where its constraint does; leave it out, or send no tools and no "
                "response_format",
                code=codes.INVALID_VALUE,
                param="ignore_eos",
            )
        for index, token in enumerate(request.stop_token_ids):
            if token >= self._tokenizer.size:
                raise RequestError(
                    f"there is no token {token}; the vocabulary has {self._tokenizer.size}",
                    param=f"stop_token_ids[{index}]",
                )

    def _plan(self, request: ChatRequest, prompt: PromptEncoding, constraints: Constraints) -> GenerationRequest:
        engine = self._release.engine
        room = engine.max_model_len - len(prompt.ids)
        if room < 1:
            raise RequestError(
                f"the conversation has {len(prompt.ids)} tokens and the context holds {engine.max_model_len}, one of "
                "which must be left for the answer; shorten the conversation",
                code=codes.CONTEXT_LENGTH,
                param="messages",
            )
        wanted = request.max_tokens or self._release.default_max_tokens
        drafts = request.num_speculative_tokens
        calls = bool(request.callable_tools) and request.tool_choice.mode != "none"
        output = OutputSpec(
            format=self._release.format,
            parse_calls=calls,
            starts_in_reasoning=prompt.starts_in_reasoning,
            schemas={name: checkable(schema) for name, schema in constraints.schemas.items()},
        )
        return GenerationRequest(
            prompt_ids=prompt.ids,
            output=output,
            model=request.model,
            max_tokens=min(wanted, room),
            constraint=constraints.constraint,
            trigger=constraints.trigger,
            stop=request.stop,
            stop_token_ids=request.stop_token_ids,
            ignore_eos=request.ignore_eos,
            deadline_ms=request.deadline_ms,
            num_speculative_tokens=engine.num_speculative_tokens if drafts is None else drafts,
            drafts=request.drafts or cast(DraftSource, engine.drafts),
            stream=request.stream,
            return_token_ids=request.return_token_ids,
            priority=request.priority,
            vocabulary=self._vocabulary,
        )
