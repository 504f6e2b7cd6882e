"""vLLM's CPU build in bfloat16, many answers at once: its engine stepped in this process, without prefix cache."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from benchmarks.peers.vllm_cpu_peer import make_model
from benchmarks.peers.worker import AskAll, How, Prompt, Stream, Workload, serve_bursts


def load(workload: Workload, threads: int) -> AskAll:
    compact = {"backend": "xgrammar", "disable_any_whitespace": True}  # as ours; blanks are tokens too
    engine = make_model(workload, threads, max_num_seqs=16, structured_outputs_config=compact).llm_engine

    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    def parameters(prompt: Prompt, how: How) -> Any:
        schema = StructuredOutputsParams(json=dict(prompt.schema)) if how.constrained else None
        return SamplingParams(temperature=0.0, max_tokens=prompt.max_tokens, structured_outputs=schema)

    def ask(prompts: Sequence[Prompt], how: How) -> Sequence[Stream]:
        texts = [""] * len(prompts)
        times: list[list[float]] = [[] for _ in prompts]
        asked = time.perf_counter()
        for number, prompt in enumerate(prompts):
            engine.add_request(str(number), {"prompt_token_ids": list(prompt.ids)}, parameters(prompt, how))
        while engine.has_unfinished_requests():
            outputs = engine.step()
            now = time.perf_counter() - asked
            for output in outputs:
                number, answer = int(output.request_id.partition("-")[0]), output.outputs[0]
                told = sum(token not in workload.stop_ids for token in answer.token_ids)
                times[number] += [now] * (told - len(times[number]))
                texts[number] = answer.text
        return [Stream(text, moments) for text, moments in zip(texts, times, strict=True)]

    return ask


if __name__ == "__main__":
    serve_bursts(load)
