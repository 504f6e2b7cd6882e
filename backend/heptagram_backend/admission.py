"""Which requests an engine takes: those that can ever run here. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from heptagram_backend.errors import RequestError
from heptagram_backend.generation import GenerationRequest
from heptagram_backend.scheduler import Scheduler
from heptagram_backend.targets.base import Target
from heptagram_wire import errors as codes


@dataclass(frozen=True, slots=True)
class Admission:
    """``vocabulary`` is the tokenizer's hash, which a plan must have been encoded with.

    ``capacity`` is how many answers may run and wait.
    """

    target: Target
    scheduler: Scheduler
    vocabulary: str
    capacity: int

    def check(self, request: GenerationRequest) -> None:
        """
        Raises:
            RequestError: the request can never run here.
        """
        if request.vocabulary is not None and request.vocabulary != self.vocabulary:
            raise RequestError(
                "the prompt was encoded with another vocabulary than this version's; roll preprocess and generate "
                "together",
                code=codes.INVALID_REQUEST,
                param="plan",
            )
        if request.ignore_eos and (request.constraint or request.trigger):
            raise RequestError("a constrained answer ends where its constraint does; leave it out", param="ignore_eos")
        width = self.target.vocab_size
        if not request.prompt_ids or not all(0 <= token < width for token in request.prompt_ids):
            raise RequestError(f"needs one or more token ids from 0 to {width - 1}", param="prompt_ids")
        if not 1 <= request.n <= self.capacity:
            raise RequestError(f"must be from 1 to {self.capacity}, which is what runs and waits here", param="n")
        total = len(request.prompt_ids) + request.max_tokens
        if request.max_tokens < 1 or total > self.target.max_model_len:
            raise RequestError(
                f"{len(request.prompt_ids)} prompt tokens and max_tokens {request.max_tokens} do not fit the context "
                f"of {self.target.max_model_len} tokens; shorten the prompt or lower max_tokens",
                code=codes.CONTEXT_LENGTH,
                param="max_tokens",
            )
        if not self.scheduler.can_ever_fit(total):
            pool = self.scheduler.pool
            raise RequestError(
                f"{len(request.prompt_ids)} prompt tokens and max_tokens {request.max_tokens} do not fit the cache of "
                f"{pool.total} blocks of {pool.block_size} tokens; shorten the prompt or lower max_tokens",
                code=codes.CONTEXT_LENGTH,
                param="max_tokens",
            )
