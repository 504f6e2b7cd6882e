"""Names of models and tensors in the Triton model repository."""

from __future__ import annotations

from typing import Final

# Models.
CHAT: Final = "chat"
COMPLETIONS: Final = "completions"
PREPROCESS: Final = "preprocess"
GENERATE: Final = "generate"
RELAY: Final = "relay"


def pinned(ensemble: str, version: int | str) -> str:
    """Name of the ensemble that answers as ``ensemble`` does, with one version for good."""
    return f"{ensemble}_v{version}"


# Ensemble `chat`.
REQUEST: Final = "request"  # STRING [1]: one JSON object
EVENTS: Final = "events"  # STRING [-1]: one JSON event each

# Ensemble `completions`, inputs; all optional but `text_input`.
TEXT_INPUT: Final = "text_input"  # STRING [1]: the prompt, raw
SAMPLING_PARAMETERS: Final = "sampling_parameters"  # STRING [1]: one JSON object of vLLM's fields
STOP_WORDS: Final = "stop_words"  # STRING [-1]
GUIDE_TYPE: Final = "guided_decoding_guide_type"  # STRING [1]
GUIDE: Final = "guided_decoding_guide"  # STRING [1]
STREAM: Final = "stream"  # BOOL [1]
EXCLUDE_INPUT: Final = "exclude_input_in_output"  # BOOL [1]
RETURN_FINISH_REASON: Final = "return_finish_reason"  # BOOL [1]
RETURN_NUM_INPUT_TOKENS: Final = "return_num_input_tokens"  # BOOL [1]
RETURN_NUM_OUTPUT_TOKENS: Final = "return_num_output_tokens"  # BOOL [1]
RETURN_CUMULATIVE_LOGPROB: Final = "return_cumulative_logprob"  # BOOL [1]
MAX_TOKENS: Final = "max_tokens"  # INT32 [1]
TOP_K: Final = "top_k"  # INT32 [1]
SEED: Final = "seed"  # UINT64 [1]
TEMPERATURE: Final = "temperature"  # FP32 [1]
TOP_P: Final = "top_p"  # FP32 [1]

COMPLETION_TEXTS: Final = (TEXT_INPUT, SAMPLING_PARAMETERS, GUIDE_TYPE, GUIDE)
COMPLETION_FLAGS: Final = (
    STREAM,
    EXCLUDE_INPUT,
    RETURN_FINISH_REASON,
    RETURN_NUM_INPUT_TOKENS,
    RETURN_NUM_OUTPUT_TOKENS,
    RETURN_CUMULATIVE_LOGPROB,
)
COMPLETION_NUMBERS: Final = (MAX_TOKENS, TOP_K, SEED, TEMPERATURE, TOP_P)

# Ensemble `completions`, outputs; n is the request's, by default 1. Only `text_output` is in each response.
TEXT_OUTPUT: Final = "text_output"  # STRING [n]
FINISH_REASON: Final = "finish_reason"  # STRING [n]: "None" but in the response in which an answer ends
NUM_INPUT_TOKENS: Final = "num_input_tokens"  # UINT32 [1]
NUM_OUTPUT_TOKENS: Final = "num_output_tokens"  # UINT32 [n]: those of this response
CUMULATIVE_LOGPROB: Final = "cumulative_logprob"  # FP32 [n]: of the answer up to this response
LOGPROBS: Final = "logprobs"  # STRING [n]: a JSON list, one entry a token of this response, where `logprobs` was given
TOTAL_DRAFT_TOKENS: Final = "total_draft_tokens"  # UINT32 [1], with the last response
TOTAL_ACCEPTED_DRAFT_TOKENS: Final = "total_accepted_draft_tokens"  # UINT32 [1], with the last response
ACCEPTANCE_RATE: Final = "acceptance_rate"  # FP32 [1], with the last response

COMPLETION_OUTPUTS: Final = (
    TEXT_OUTPUT,
    FINISH_REASON,
    NUM_INPUT_TOKENS,
    NUM_OUTPUT_TOKENS,
    CUMULATIVE_LOGPROB,
    LOGPROBS,
    TOTAL_DRAFT_TOKENS,
    TOTAL_ACCEPTED_DRAFT_TOKENS,
    ACCEPTANCE_RATE,
)

# preprocess -> generate.
PLAN: Final = "plan"  # STRING [1]: a GenerationRequest as JSON, without the prompt ids
PROMPT_IDS: Final = "prompt_ids"  # INT32 [-1]

# Explicit stop, straight to `generate`.
ID: Final = "id"  # STRING [1]: the id of `start`
STOP: Final = "stop"  # BOOL [1]

# generate -> relay: where to send which ticket when the client has left.
TICKET: Final = "ticket"  # STRING [1]: JSON {"ticket": ..., "address": ...}
