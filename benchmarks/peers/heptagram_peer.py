"""Ours: K7 steps at batch 1 with the drafters that a request gets by default."""

from __future__ import annotations

from benchmarks.bench_engine import BenchEngine
from benchmarks.peers.worker import Answer, Ask, Prompt, Workload, serve
from heptagram_backend.tokenizer import CheckpointTokenizer
from heptagram_wire.requests import encode_request


def load(workload: Workload, threads: int) -> Ask:
    from pathlib import Path

    engine = BenchEngine(threads=threads)
    pieces = CheckpointTokenizer(Path(workload.checkpoint)).token_bytes()

    def ask(prompt: Prompt) -> Answer:
        measured = engine.run([engine.preprocessor.prepare(encode_request(dict(prompt.request)))])
        text = b"".join(pieces[token] or b"" for token in measured.tokens[0]).decode(errors="replace")
        return Answer(text, measured.generated, measured.prefill_s + measured.decode_s, measured.decode_s)

    return ask


if __name__ == "__main__":
    serve(load)
