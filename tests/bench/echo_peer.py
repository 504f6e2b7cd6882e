"""A peer that answers with the number of the prompt's tokens."""

from __future__ import annotations

from benchmarks.peers.worker import Answer, Ask, Prompt, Workload, serve


def load(workload: Workload, threads: int) -> Ask:
    print("noise on standard output, as libraries make it")  # noqa: T201

    def ask(prompt: Prompt) -> Answer:
        return Answer(f'{{"a": {len(prompt.ids)}}}', prompt.max_tokens, 1.0 * threads)

    return ask


if __name__ == "__main__":
    try:
        serve(load)
    except IndexError:
        raise SystemExit("no prompt 7") from None
