"""llama.cpp through its Python binding, on the same GGUF file (four-bit weights), with its own grammar engine."""

from __future__ import annotations

import json
import time
from typing import Any

from benchmarks.peers.worker import Answer, Ask, Prompt, Workload, serve


def load(workload: Workload, threads: int) -> Ask:
    from llama_cpp import Llama, LlamaGrammar

    model = Llama(workload.gguf, n_ctx=2048, n_threads=threads, n_threads_batch=threads, verbose=False)
    grammars: dict[str, Any] = {}

    def ask(prompt: Prompt) -> Answer:
        schema = json.dumps(prompt.schema)
        if schema not in grammars:
            grammars[schema] = LlamaGrammar.from_json_schema(schema, verbose=False)
        model.reset()  # no prefix of the last prompt is kept
        begun: float | None = None
        pieces: list[str] = []
        start = time.perf_counter()
        for chunk in model.create_completion(
            list(prompt.ids), max_tokens=prompt.max_tokens, temperature=0.0, grammar=grammars[schema], stream=True
        ):
            begun = begun or time.perf_counter()
            pieces.append(chunk["choices"][0]["text"])
        end = time.perf_counter()
        text = "".join(pieces)
        tokens = len(model.tokenize(text.encode(), add_bos=False, special=False)) + 1
        return Answer(text, tokens, end - start, end - (begun or start))

    return ask


if __name__ == "__main__":
    serve(load)
