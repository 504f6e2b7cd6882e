"""vLLM's CPU build in bfloat16 with structured output, without its prefix cache (every run repeats a prompt)."""

from __future__ import annotations

import os
import time
from typing import Any

from benchmarks.peers.worker import Answer, Ask, Prompt, Workload, serve


def make_model(workload: Workload, threads: int, **options: Any) -> Any:
    """vLLM's ``LLM`` on the first ``threads`` cores, its engine in this process."""
    os.environ |= {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "0" if threads == 1 else f"0-{threads - 1}",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "HF_HUB_OFFLINE": "1",
    }
    from vllm import LLM

    return LLM(workload.checkpoint, dtype="bfloat16", max_model_len=2048, enable_prefix_caching=False, **options)


def load(workload: Workload, threads: int) -> Ask:
    model = make_model(workload, threads, max_num_seqs=8)

    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    def ask(prompt: Prompt) -> Answer:
        parameters = SamplingParams(
            temperature=0.0,
            max_tokens=prompt.max_tokens,
            structured_outputs=StructuredOutputsParams(json=dict(prompt.schema)),
        )
        start = time.perf_counter()
        (output,) = model.generate([{"prompt_token_ids": list(prompt.ids)}], parameters, use_tqdm=False)
        end = time.perf_counter()
        return Answer(output.outputs[0].text, len(output.outputs[0].token_ids), end - start)

    return ask


if __name__ == "__main__":
    serve(load)
