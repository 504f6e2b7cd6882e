"""A program that makes a tiny random DeepSeek V4: ``tiny_deepseek_v4.py TOKENIZER_JSON FOLDER``.

The architecture is whole (sliding, compressed sparse and heavily compressed attention, hash and learned routing, hyper
connections, the real windows and rates) and the tokenizer is the real one; only the sizes are tiny and the weights are
drawn. It knows nothing, so what it is good for is what must hold of any weights: formats, constraints, speculation.

Drawn weights would hardly ever end anything: the one right token stands against a hundred thousand others. So the first
channels of the residual stream are set apart: no layer writes to them, so that they hold what the embedding of the
current token says. The first is 1 for every token, and the head reads from it how much each token is *pulled*: those
that end a string, a value, the reasoning or the answer. The next ones are 1 behind tokens that begin markup, and pull
what goes on with it. All other weights are noise, and so is what the pulls decide: they are a head start, no rule.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from heptagram_backend.convert import program
from heptagram_backend.formats.deepseek_v4.markup import BOS, DSML, EOS, THINK_END

if TYPE_CHECKING:
    from torch import Tensor

SEED: Final = 4
_SIZES: Final[dict[str, Any]] = {
    "hidden_size": 64,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 3,
    "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
    "mlp_layer_types": ["hash_moe", "moe", "moe"],
    "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128},
    "sliding_window": 128,
    "num_attention_heads": 4,
    "head_dim": 32,
    "partial_rotary_factor": 0.5,
    "q_lora_rank": 32,
    "o_groups": 2,
    "o_lora_rank": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "index_n_heads": 16,
    "index_head_dim": 16,
    "index_topk": 32,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 4,
    "max_position_embeddings": 8192,
    "initializer_range": 0.25,
    "tie_word_embeddings": False,
}
# So that the whole context counts and not just the last token: embeddings are small beside what the layers add (their
# standard deviation), and keys are long (the weight of their norm), so that attention looks at few places.
_SPREAD: Final = 0.15
_SHARPNESS: Final = 3.0

# In standard deviations of the noise, of which the best of 129,280 tokens has about 4.4.
_PULLS: Final[dict[str, float]] = {EOS: 5.0, THINK_END: 5.5, "</": 5.5, "\n\n": 5.0}
_CLOSERS: Final = frozenset('"}]')
_STRUCTURE: Final = frozenset('"{}[],: \n')
_CLOSING_PULL: Final = 3.0
_SILENT_PULL: Final = -20.0  # control tokens that no answer holds
# Behind the tokens on the left, those on the right. The marker is a control token: without the pull it stays silent.
_FOLLOWS: Final[tuple[tuple[tuple[str, ...], str, float], ...]] = (
    (("\n\n",), "<", 6.0),
    ((">\n", "\n"), "<", 5.5),  # one more parameter, one more call
    (("<", "</"), DSML, 28.0),
)
_RESERVED: Final = 1 + len(_FOLLOWS)


def make(tokenizer_file: Path, folder: Path) -> None:
    """Write config, generation config, tokenizer and bfloat16 safetensors to ``folder``; the same files every time."""
    import torch
    from transformers import DeepseekV4Config, DeepseekV4ForCausalLM, GenerationConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer_file.with_name(name), folder / name)
    texts, control = _vocabulary(json.loads(tokenizer_file.read_text(encoding="utf-8")))
    ids = {text: token for token, text in texts.items()}
    ends = {"bos_token_id": ids[BOS], "eos_token_id": ids[EOS]}
    torch.manual_seed(SEED)
    model = DeepseekV4ForCausalLM(DeepseekV4Config(vocab_size=len(texts), **_SIZES, **ends)).eval()
    with torch.inference_mode():
        _draw(model)
        _pull_tokens(model, torch.tensor([_pull(texts[token], token in control) for token in range(len(texts))]), ids)
    model.generation_config = GenerationConfig(**ends)
    model.to(torch.bfloat16).save_pretrained(folder)


def _vocabulary(source: Mapping[str, Any]) -> tuple[dict[int, str], frozenset[int]]:
    """The text of each token id as the vocabulary spells it, and which ids are control tokens."""
    added = {token["id"]: token["content"] for token in source["added_tokens"]}
    texts = {token: text.replace("Ċ", "\n").replace("Ġ", " ") for text, token in source["model"]["vocab"].items()}
    return {**texts, **added}, frozenset(added)


def _pull(text: str, control: bool) -> float:
    if text in _PULLS:
        return _PULLS[text]
    if control:
        return _SILENT_PULL
    closes = set(text) <= _STRUCTURE and _CLOSERS & set(text)
    return _CLOSING_PULL if closes else 0.0


def _draw(model: Any) -> None:
    """Draw what transformers leaves at zero, and the embeddings; no layer writes to the reserved channels."""
    import torch

    layers, embedding = model.model.layers, model.model.embed_tokens.weight
    routing = layers[0].mlp.gate.tid2eid
    routing.copy_(torch.rand(len(embedding), model.config.n_routed_experts).argsort(-1)[:, : routing.shape[1]])
    embedding.normal_(std=_SPREAD)
    for layer in layers:
        layer.self_attn.kv_norm.weight.fill_(_SHARPNESS)
        layer.self_attn.o_b_proj.weight[:_RESERVED] = 0
        layer.mlp.experts.down_proj[:, :_RESERVED] = 0
        layer.mlp.shared_experts.down_proj.weight[:_RESERVED] = 0


def _pull_tokens(model: Any, pulls: Tensor, ids: Mapping[str, int]) -> None:
    """Write the reserved channels, and a head whose logits are noise of deviation 1 and ``pulls`` [V]."""
    import torch

    embedding, head = model.model.embed_tokens.weight, model.lm_head.weight
    embedding[:, :_RESERVED] = 0
    embedding[:, 0] = 1
    for channel, (before, _, _) in enumerate(_FOLLOWS, start=1):
        embedding[[ids[text] for text in before], channel] = 1
    sample = torch.randint(len(pulls), (1, 256))
    hidden = model.model(sample, use_cache=False).last_hidden_state[0]
    unit = hidden[:, 0].mean()  # what a 1 in a reserved channel has become before the head
    head.normal_().div_(hidden[:, _RESERVED:].norm(dim=-1).mean())
    head[:, :_RESERVED] = 0
    head[:, 0] = pulls / unit
    for channel, (_, text, pull) in enumerate(_FOLLOWS, start=1):
        head[ids[text], channel] = pull / unit


if __name__ == "__main__":
    sys.exit(program(make))
