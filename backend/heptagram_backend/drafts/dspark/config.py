"""``config.json`` of a DSpark drafter as DeepSpec writes it, for Qwen3 and Gemma 4. Read and checked once; no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from heptagram_backend.errors import ReleaseError

Family = Literal["qwen3", "gemma4"]
MarkovKind = Literal["vanilla", "gated", "rnn"]

ARCHITECTURES: Final[dict[str, Family]] = {"Qwen3DSparkModel": "qwen3", "Gemma4DSparkModel": "gemma4"}
MARKOV_KINDS: Final = ("vanilla", "gated", "rnn")
EMBEDDINGS: Final = -1
"""As a target layer: the embedding's output."""


@dataclass(frozen=True, slots=True)
class DSparkConfig:
    """Sizes of a drafter. ``raw`` is the whole file, of which the rotary embedding needs more.

    ``target_layer_ids`` are the target's layers whose outputs are read, -1 for its embeddings. ``draft_vocab_size`` is
    how many of the ``vocab_size`` tokens are ever proposed, all where the file does not say. ``markov`` is None without
    a Markov head. ``shared_values``: values are the keys before their norm (Gemma 4's ``attention_k_eq_v``).
    """

    family: Family
    vocab_size: int
    draft_vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    epsilon: float
    activation: str
    bias: bool
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    markov: MarkovKind | None
    markov_rank: int
    confidence: bool
    confidence_with_markov: bool
    shared_values: bool
    softcap: float | None
    raw: Mapping[str, Any]

    @property
    def is_reduced(self) -> bool:
        """Some tokens are never proposed."""
        return self.draft_vocab_size < self.vocab_size

    @property
    def markov_tokens(self) -> int:
        """Rows of the Markov head's embedding; the last one stands for all tokens that are never proposed."""
        return self.draft_vocab_size + self.is_reduced

    @classmethod
    def load(cls, folder: Path) -> DSparkConfig:
        """Read ``config.json`` of a drafter's folder.

        Raises:
            ReleaseError: it is not there, is no DSpark drafter, or a field is missing or out of range.
        """
        path = folder / "config.json"
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ReleaseError(f"drafter: {path} cannot be read ({error})") from error
        return cls.parse(raw, where=str(path))

    @classmethod
    def parse(cls, raw: Any, *, where: str = "config.json") -> DSparkConfig:
        """As :meth:`load`, from what the file holds."""
        fields = _Fields(raw, where)
        family = fields.family()
        gemma = family == "gemma4"
        shared_values = gemma and fields.flag("attention_k_eq_v")
        rank = fields.whole("markov_rank", least=0)
        confidence = fields.flag("enable_confidence_head")
        with_markov = confidence and fields.flag("confidence_head_with_markov")
        if with_markov and not rank:
            raise fields.error("confidence_head_with_markov", "is true, but markov_rank is 0")
        if gemma and (fields.get("enable_moe_block", False) or fields.get("hidden_size_per_layer_input", 0)):
            raise fields.error("enable_moe_block", "and hidden_size_per_layer_input must be off in a DSpark drafter")
        hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
        kv_heads = fields.whole("num_global_key_value_heads" if shared_values else "num_key_value_heads")
        if heads % kv_heads:
            raise fields.error("num_attention_heads", f"is {heads}, no multiple of the {kv_heads} key/value heads")
        num_target_layers = fields.whole("num_target_layers")
        vocab_size = fields.whole("vocab_size")
        layers = fields.whole("num_hidden_layers")
        if set(fields.get("layer_types", ())) - {"full_attention"}:
            raise fields.error("layer_types", "must all be full_attention")
        return cls(
            family=family,
            vocab_size=vocab_size,
            draft_vocab_size=fields.whole("draft_vocab_size", most=vocab_size, default=vocab_size),
            hidden_size=hidden,
            intermediate_size=fields.whole("intermediate_size"),
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=fields.whole("global_head_dim") if gemma else fields.whole("head_dim", default=hidden // heads),
            epsilon=float(fields.get("rms_norm_eps", 1e-6)),
            activation=str(fields.get("hidden_activation" if gemma else "hidden_act", "gelu_pytorch_tanh")),
            bias=bool(fields.get("attention_bias", False)),
            block_size=fields.whole("block_size"),
            mask_token_id=fields.whole("mask_token_id", least=0, most=vocab_size - 1),
            target_layer_ids=fields.layers(num_target_layers),
            num_target_layers=num_target_layers,
            markov=fields.markov() if rank else None,
            markov_rank=rank,
            confidence=confidence,
            confidence_with_markov=with_markov,
            shared_values=shared_values,
            softcap=fields.softcap() if gemma else None,
            raw=raw,
        )


class _Fields:
    """The fields of one file, with errors that name them."""

    def __init__(self, raw: Any, where: str) -> None:
        if not isinstance(raw, dict):
            raise ReleaseError(f"drafter: {where}: must be an object")
        self._raw: dict[str, Any] = raw
        self._where = where

    def error(self, name: str, fault: str) -> ReleaseError:
        return ReleaseError(f"drafter: {self._where}: {name} {fault}")

    def get(self, name: str, default: Any) -> Any:
        value = self._raw.get(name)
        return default if value is None else value

    def need(self, name: str) -> Any:
        if self._raw.get(name) is None:
            raise self.error(name, "is missing; a DSpark drafter has it")
        return self._raw[name]

    def whole(self, name: str, *, least: int = 1, most: int | None = None, default: int | None = None) -> int:
        value = self.need(name) if default is None else self.get(name, default)
        if type(value) is not int or value < least or (most is not None and value > most):
            bounds = f"at least {least}" if most is None else f"from {least} to {most}"
            raise self.error(name, f"is {value!r}, but must be a whole number {bounds}")
        return value

    def flag(self, name: str) -> bool:
        value = self.need(name)
        if type(value) is not bool:
            raise self.error(name, f"is {value!r}, but must be true or false")
        return value

    def family(self) -> Family:
        if "dspark_block_size" in self._raw:
            raise self.error(
                "dspark_block_size",
                "is a field of DeepSeek V4's drafters (mtp.*), which cannot be run here yet; drafters in DeepSpec's "
                f"layout can: {', '.join(ARCHITECTURES)}",
            )
        names = self.get("architectures", [])
        found = [ARCHITECTURES[name] for name in names if name in ARCHITECTURES]
        if len(found) != 1:
            raise self.error("architectures", f"are {names!r}, but must name one of {', '.join(ARCHITECTURES)}")
        return found[0]

    def markov(self) -> MarkovKind:
        kind = self.need("markov_head_type")
        if kind not in MARKOV_KINDS:
            raise self.error("markov_head_type", f"is {kind!r}; known are {', '.join(MARKOV_KINDS)}")
        return cast(MarkovKind, kind)

    def layers(self, count: int) -> tuple[int, ...]:
        ids = self.need("target_layer_ids")
        rising = isinstance(ids, list) and ids and all(type(one) is int for one in ids) and ids == sorted(set(ids))
        # The last layer's output is stored normalised by some targets and raw by others, so nobody trains on it.
        if not rising or ids[0] < EMBEDDINGS or ids[-1] >= count - 1:
            bounds = f"{EMBEDDINGS} (the embeddings) to {count - 2} (the last layer but one)"
            raise self.error("target_layer_ids", f"are {ids!r}, but must rise within {bounds}")
        return tuple(ids)

    def softcap(self) -> float | None:
        value = self._raw.get("final_logit_softcapping")
        if value is None:
            return None
        if not isinstance(value, int | float) or value <= 0:
            raise self.error("final_logit_softcapping", f"is {value!r}, but must be positive")
        return float(value)
