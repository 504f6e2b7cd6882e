"""What stands around the choices of an answer, streamed or whole."""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from heptagram_gateway.generation import Generation
from heptagram_wire.events import Finish, SpeculativeStats


@dataclass(frozen=True, slots=True)
class Envelope:
    """``fingerprint`` names the model and version that answered."""

    id: str
    model: str
    fingerprint: str
    created: int = field(default_factory=lambda: int(time.time()))

    def frame(self, kind: str) -> dict[str, Any]:
        """The fields that every chunk repeats."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


def envelope_of(generation: Generation) -> Envelope:
    """The id is a new one: the engine's own could stop the request, and ids get about."""
    start = generation.start
    return Envelope(new_id("chatcmpl"), generation.target.id, f"{start.model}@{start.version}")


def new_id(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(12)}"


def usage_of(finish: Finish) -> dict[str, Any]:
    """``usage``, and ``metrics.speculative_decoding`` under the keys that AIPerf reads."""
    usage = finish.usage
    counts = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }
    return {"usage": counts, "metrics": {"speculative_decoding": _drafts(finish.stats.speculative_decoding)}}


def _drafts(stats: SpeculativeStats) -> dict[str, Any]:
    return asdict(stats) | {
        "num_accepted_draft_tokens": stats.num_accepted_draft_tokens,
        "num_accepted_tokens_per_pos": stats.num_accepted_tokens_per_pos,
        "num_spec_steps": stats.num_spec_steps,
        "num_spec_tokens": stats.num_spec_tokens,
        "mean_acceptance_length": stats.mean_acceptance_length,
        "draft_acceptance_rate": stats.draft_acceptance_rate,
    }
