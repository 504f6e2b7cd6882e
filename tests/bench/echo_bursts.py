"""A peer that answers each prompt of a burst with how it was asked."""

from __future__ import annotations

import json
from collections.abc import Sequence

from benchmarks.peers.worker import AskAll, How, Prompt, Stream, Workload, serve_bursts


def load(_workload: Workload, _threads: int) -> AskAll:
    def ask(prompts: Sequence[Prompt], how: How) -> Sequence[Stream]:
        return [Stream(json.dumps([how.constrained, how.drafts]), [0.25]) for _ in prompts]

    return ask


if __name__ == "__main__":
    serve_bursts(load)
