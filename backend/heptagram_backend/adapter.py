"""An adapter's folder: ``adapter.json`` beside ``adapter.safetensors``. No torch.

Of every adapted layer there are two matrices, ``LAYER.down`` [rank, in] and ``LAYER.up`` [out, rank], to be added to
its weight as ``scale * up @ down``. ``rows`` [tokens, hidden] are embeddings of control tokens that get another text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from heptagram_backend.errors import ReleaseError

CONFIG_FILE: Final = "adapter.json"
WEIGHTS_FILE: Final = "adapter.safetensors"
DOWN, UP, ROWS = "down", "up", "rows"


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """What the weights belong to.

    Args:
        base: the digest of the weights that were adapted, by ``heptagram_backend.merge.weights_digest``.
        format: the format that was learnt.
        rank: of the matrices.
        scale: of their product.
        control_tokens: new texts of control tokens of the tokenizer, by their old ones.
        rows: ids of the tokens whose embeddings are the rows, in their order.
        training: how it was made, for the reader.
    """

    base: str
    format: str
    rank: int
    scale: float
    control_tokens: Mapping[str, str] = field(default_factory=dict)
    rows: Sequence[int] = ()
    training: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> AdapterConfig:
        """Read the folder's ``adapter.json``.

        Raises:
            ReleaseError: it is not there, or not what it should be.
        """
        path = folder / CONFIG_FILE
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise ReleaseError(f"adapter {folder}: {CONFIG_FILE} cannot be read ({error})") from error

    def save(self, folder: Path) -> None:
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"
        (folder / CONFIG_FILE).write_text(text, encoding="utf-8")


def renamed(tokenizer: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The content of a ``tokenizer.json`` whose control tokens ``names`` have new texts, which are shown as text.

    Raises:
        ReleaseError: there is no such control token, or the new text is one already.
    """
    added = {token["content"]: token for token in tokenizer.get("added_tokens", [])}
    for old, new in names.items():
        if old not in added or new in added:
            raise ReleaseError(f"adapter: the checkpoint's tokenizer has no control token {old!r} to be called {new!r}")
    tokens = [
        {**token, "content": names[token["content"]], "special": False} if token["content"] in names else token
        for token in tokenizer["added_tokens"]
    ]
    vocabulary = {names.get(text, text): token for text, token in tokenizer["model"]["vocab"].items()}
    return {**tokenizer, "added_tokens": tokens, "model": {**tokenizer["model"], "vocab": vocabulary}}


def rename_tokens(folder: Path, names: Mapping[str, str]) -> None:
    """Rename control tokens in a checkpoint's ``tokenizer.json``.

    Raises:
        ReleaseError: as :func:`renamed`.
    """
    path = folder / "tokenizer.json"
    tokenizer = renamed(json.loads(path.read_text(encoding="utf-8")), names)
    path.write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
