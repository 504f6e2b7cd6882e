"""``transformers``' continuous batching in bfloat16, with XGrammar's masks by request.

It has no constraints of its own: the masks come from a logits processor in the interface that it has for processors of
single requests.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.peers.worker import AskAll, How, Prompt, Stream, Workload, serve_bursts


def load(workload: Workload, threads: int) -> AskAll:
    import torch
    import xgrammar
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LogitsProcessorList
    from transformers.generation import ContinuousBatchingConfig
    from transformers.generation.continuous_batching.cb_logits_processors import (
        ContinuousBatchingLogitsProcessor,
        ContinuousBatchingLogitsProcessorList,
    )

    torch.set_num_threads(threads)
    tokenizer = AutoTokenizer.from_pretrained(workload.checkpoint)
    model = AutoModelForCausalLM.from_pretrained(workload.checkpoint, dtype=torch.bfloat16).eval()
    width = model.config.vocab_size
    compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=width))
    compiled: dict[str, Any] = {}

    class Masks(ContinuousBatchingLogitsProcessor):  # type: ignore[misc]
        """Holds the matcher of each constrained request, by its id."""

        supported_kwargs: dict[str, type] = {}  # noqa: RUF012
        ignored_kwargs = ()

        def __init__(self) -> None:
            self.matchers: dict[str, Any] = {}
            self._read: dict[str, int] = {}
            self._rows: list[int] = []
            self._mask = xgrammar.allocate_token_bitmask(64, width)

        def fill_defaults(self, int32_tensor: Any) -> None:
            int32_tensor.zero_()

        def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> Any:
            self._rows = []
            for row, request in enumerate(requests_with_new_token):
                matcher = self.matchers.get(request.state.request_id)
                if matcher is None:
                    continue
                tokens = request.state.generated_tokens
                for token in tokens[self._read.get(request.state.request_id, 0) :]:
                    matcher.accept_token(token)
                self._read[request.state.request_id] = len(tokens)
                matcher.fill_next_token_bitmask(self._mask, row)
                self._rows.append(row)
            return torch.zeros(len(requests_with_new_token), dtype=torch.int32)

        def __call__(self, scores: Any, tensor_arg: Any) -> Any:  # noqa: ARG002
            if self._rows:
                xgrammar.apply_token_bitmask_inplace(scores, self._mask[: len(scores)], indices=self._rows)
            return scores

        def forget(self) -> None:
            self.matchers.clear()
            self._read.clear()

    generation = GenerationConfig(do_sample=False, eos_token_id=list(workload.stop_ids), pad_token_id=0)
    options = ContinuousBatchingConfig(
        num_blocks=48, max_requests_per_batch=16, allow_block_sharing=False, auto_switch_to_flash=False
    )
    manager = model.init_continuous_batching(generation, options)
    masks = Masks()
    manager.logit_processor = ContinuousBatchingLogitsProcessorList(LogitsProcessorList([masks]))
    manager.logit_processor.tensors_required = 1
    manager.start()

    def matcher(prompt: Prompt) -> Any:
        schema = json.dumps(prompt.schema)
        if schema not in compiled:
            compiled[schema] = compiler.compile_json_schema(schema, any_whitespace=False)
        return xgrammar.GrammarMatcher(compiled[schema])

    def ask(prompts: Sequence[Prompt], how: How) -> Sequence[Stream]:
        asked = time.perf_counter()
        if how.constrained:
            masks.matchers |= {str(number): matcher(prompt) for number, prompt in enumerate(prompts)}
        for number, prompt in enumerate(prompts):
            manager.add_request(list(prompt.ids), str(number), max_new_tokens=prompt.max_tokens, record_timestamps=True)
        done: dict[str, Any] = {}
        while len(done) < len(prompts):
            output = manager.get_result(timeout=1)
            if output is not None:
                if output.error:
                    raise RuntimeError(output.error)
                done[output.request_id] = output
        masks.forget()
        return [_stream(done[str(number)], asked) for number in range(len(prompts))]

    def _stream(output: Any, asked: float) -> Stream:
        told = [
            (token, moment - asked)
            for token, moment in zip(output.generated_tokens, output.timestamps, strict=True)
            if token not in workload.stop_ids
        ]
        return Stream(tokenizer.decode([token for token, _ in told]), [moment for _, moment in told])

    return ask


if __name__ == "__main__":
    serve_bursts(load)
