"""The first step: from the text of a chat, or the inputs of a completion, to a plan that ``generate`` can run.

Thread-safe: a preprocessor holds nothing of a request. Neither torch nor a grammar library is imported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heptagram_backend.conversation import ChatRequest
from heptagram_backend.errors import ReleaseError, RequestError
from heptagram_backend.formats import load_format
from heptagram_backend.formats.base import Constraints, PromptEncoding
from heptagram_backend.formats.json_value import bounded
from heptagram_backend.generation import CompletionOutput, GenerationRequest, Markup, OutputSpec
from heptagram_backend.release import Release
from heptagram_backend.requests import enforce, parse_chat_request
from heptagram_backend.requests.completions import CompletionInputs, CompletionRequest, parse_completion
from heptagram_backend.schema import checkable
from heptagram_backend.tokenizer import CheckpointTokenizer
from heptagram_wire import errors as codes
from heptagram_wire import tensors as names


class Preprocessor:
    """Reads requests for one version.

    Args:
        release: the version's ``release.yaml``.
        checkpoint: the resolved folder of its checkpoint.

    Raises:
        ReleaseError: the format or the tokenizer is not there, they do not fit, or the vocabulary is not the release's.
    """

    def __init__(self, release: Release, checkpoint: Path) -> None:
        self._release = release
        self._limits = release.limits.request
        self._format = load_format(release.format, release.answer)
        self._tokenizer = CheckpointTokenizer(checkpoint)
        self._format.check(self._tokenizer)
        self._tokenizer.warm_up()
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
        model, conventions = self._release.served_model_name, self._format.conventions
        request = enforce(parse_chat_request(raw, self._limits, model, conventions), self._limits.schema)
        prompt = self._format.encode(request, self._tokenizer)
        constraints = self._format.constrain(request, prompt)
        self._check(request, constrained=bool(constraints.constraint or constraints.trigger))
        return self._chat_plan(request, prompt, constraints)

    def complete(self, inputs: CompletionInputs) -> GenerationRequest:
        """The same for a completion. Its prompt is raw: control tokens in it are control tokens, as in vLLM.

        Raises:
            RequestError: as :meth:`prepare`.
        """
        request = parse_completion(inputs, self._limits)
        self._check(request, constrained=request.constraint is not None)
        ids = tuple(self._tokenizer.encode_raw(request.text))
        if not ids:
            raise RequestError("the prompt is empty; send some text", param=names.TEXT_INPUT)
        output = CompletionOutput(
            prompt=request.text if request.echo else "",
            finish_reason=request.finish_reason,
            num_input_tokens=request.num_input_tokens,
            num_output_tokens=request.num_output_tokens,
            cumulative_logprob=request.cumulative_logprob,
            logprobs=request.logprobs is not None,
        )
        return GenerationRequest(
            prompt_ids=ids,
            output=OutputSpec(format=self._release.format),
            model=self._release.served_model_name,
            max_tokens=min(request.max_tokens, self._room(ids, names.TEXT_INPUT)),
            constraint=None if request.constraint is None else bounded(request.constraint, self._release.answer),
            stream=request.stream,
            return_token_ids=request.stream and request.num_output_tokens,  # to count those of each response
            completion=output,
            logprobs=0 if request.logprobs is None and request.cumulative_logprob else request.logprobs,
            **self._common(request),
        )

    def _check(self, request: ChatRequest | CompletionRequest, *, constrained: bool) -> None:
        if request.ignore_eos and constrained:
            raise RequestError(
                "a constrained answer ends where its constraint does; leave it out, or leave out what constrains "
                "(tools, response_format, a guide)",
                code=codes.INVALID_VALUE,
                param="ignore_eos",
            )
        for index, token in enumerate(request.stop_token_ids):
            if token >= self._tokenizer.size:
                raise RequestError(
                    f"there is no token {token}; the vocabulary has {self._tokenizer.size}",
                    param=f"stop_token_ids[{index}]",
                )

        for entry in request.sampling.logit_bias:
            if entry.token >= self._tokenizer.size:
                raise RequestError(
                    f"there is no token {entry.token}; the vocabulary has {self._tokenizer.size}",
                    param=f"logit_bias.{entry.token}",
                )

    def _room(self, ids: tuple[int, ...], param: str) -> int:
        """How many tokens the answer may have."""
        limit = self._release.engine.max_model_len
        if len(ids) >= limit:
            raise RequestError(
                f"the prompt has {len(ids)} tokens and the context holds {limit}, one of which must be left for the "
                "answer; shorten it",
                code=codes.CONTEXT_LENGTH,
                param=param,
            )
        return limit - len(ids)

    def _chat_plan(self, request: ChatRequest, prompt: PromptEncoding, constraints: Constraints) -> GenerationRequest:
        wanted = request.max_tokens or self._release.default_max_tokens
        calls = bool(request.callable_tools) and request.tool_choice.mode != "none"
        output = OutputSpec(
            format=self._release.format,
            parse_calls=calls,
            markup=_markup(request, constraints),
            starts_in_reasoning=prompt.starts_in_reasoning,
            tools=constraints.tools,
            schemas={name: checkable(schema) for name, schema in constraints.schemas.items()},
            answer=_answer(request),
        )
        return GenerationRequest(
            prompt_ids=prompt.ids,
            output=output,
            model=request.model,
            max_tokens=min(wanted, self._room(prompt.ids, "messages")),
            constraint=constraints.constraint,
            trigger=constraints.trigger,
            stream=request.stream,
            return_token_ids=request.return_token_ids,
            logprobs=request.logprobs,
            **self._common(request),
        )

    def _common(self, request: ChatRequest | CompletionRequest) -> dict[str, Any]:
        engine = self._release.engine
        drafts = request.num_speculative_tokens
        return {
            "stop": request.stop,
            "stop_token_ids": request.stop_token_ids,
            "ignore_eos": request.ignore_eos,
            "sampling": request.sampling,
            "n": request.n,
            "deadline_ms": request.deadline_ms,
            "num_speculative_tokens": engine.num_speculative_tokens if drafts is None else drafts,
            "drafts": request.drafts or engine.drafts,
            "priority": request.priority,
            "vocabulary": self._vocabulary,
        }


def _answer(request: ChatRequest) -> Any:
    """What the text of an answer must validate against; ``None`` where it is free, or there is none."""
    if request.response_format is None or request.tool_choice.mode == "required":
        return None
    return checkable(request.response_format.declared)


def _markup(request: ChatRequest, constraints: Constraints) -> Markup:
    """What is known of the answer's markup."""
    if constraints.constraint is not None and request.tool_choice.mode == "required":
        return "calls"
    return "guarded" if constraints.constraint or constraints.trigger else "free"
