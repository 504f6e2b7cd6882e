"""``transformers.generate`` in bfloat16 with XGrammar's logits processor."""

from __future__ import annotations

import json
import time
from typing import Any

from benchmarks.peers.worker import Answer, Ask, Prompt, Workload, serve


def load(workload: Workload, threads: int) -> Ask:
    import torch
    import xgrammar
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from xgrammar.contrib.hf import LogitsProcessor

    torch.set_num_threads(threads)
    tokenizer = AutoTokenizer.from_pretrained(workload.checkpoint)
    model = AutoModelForCausalLM.from_pretrained(workload.checkpoint, dtype=torch.bfloat16).eval()
    width = model.config.vocab_size
    compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=width))
    compiled: dict[str, Any] = {}

    class Clocked(LogitsProcessor):  # type: ignore[misc]
        """Notes when the prompt is done."""

        begun: float | None = None

        def __call__(self, input_ids: Any, scores: Any) -> Any:
            self.begun = self.begun or time.perf_counter()
            return super().__call__(input_ids, scores)

    def ask(prompt: Prompt) -> Answer:
        schema = json.dumps(prompt.schema)
        if schema not in compiled:
            compiled[schema] = compiler.compile_json_schema(schema)
        clocked = Clocked(compiled[schema])
        ids = torch.tensor([list(prompt.ids)])
        start = time.perf_counter()
        with torch.inference_mode():
            output = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=prompt.max_tokens,
                do_sample=False,
                logits_processor=[clocked],
            )
        end = time.perf_counter()
        tokens = output[0, ids.shape[1] :]
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        return Answer(text, len(tokens), end - start, end - (clocked.begun or start))

    return ask


if __name__ == "__main__":
    serve(load)
