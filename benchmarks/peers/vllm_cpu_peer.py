"""vLLM's CPU build in bfloat16 with structured output, without its prefix cache (every run repeats a prompt)."""

from __future__ import annotations

import os
import time

from benchmarks.peers.worker import Answer, Ask, Prompt, Workload, serve


def load(workload: Workload, threads: int) -> Ask:
    os.environ |= {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "0" if threads == 1 else f"0-{threads - 1}",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "HF_HUB_OFFLINE": "1",
    }
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    model = LLM(workload.checkpoint, dtype="bfloat16", max_model_len=2048, max_num_seqs=8, enable_prefix_caching=False)

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
