"""Names of models and tensors in the Triton model repository."""

from __future__ import annotations

from typing import Final

# Models.
CHAT: Final = "chat"
COMPLETIONS: Final = "completions"
PREPROCESS: Final = "preprocess"
GENERATE: Final = "generate"
RELAY: Final = "relay"

# Ensemble `chat`.
REQUEST: Final = "request"  # STRING [1]: one JSON object
EVENTS: Final = "events"  # STRING [-1]: one JSON event each

# preprocess -> generate.
PLAN: Final = "plan"  # STRING [1]: a GenerationRequest as JSON, without the prompt ids
PROMPT_IDS: Final = "prompt_ids"  # INT32 [-1]

# Explicit stop, straight to `generate`.
ID: Final = "id"  # STRING [1]: the id of `start`
STOP: Final = "stop"  # BOOL [1]

# generate -> relay: where to send which ticket when the client has left.
TICKET: Final = "ticket"  # STRING [1]: JSON {"ticket": ..., "address": ...}
