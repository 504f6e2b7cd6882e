"""What a target answered, on disk: a folder with a file for each answer, and one that says where they come from.

A file holds all that a drafter is trained on: the tokens, the target's hidden states, and what the target thought of
each token of the answer. Files are mapped, not read, so a set may be larger than memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from heptagram_backend.errors import ReleaseError

SET_FILE: Final = "answers.json"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the target.

    ``tokens`` int64 [T] are prompt and answer without the stop token, ``prompt`` of them the prompt's. ``hidden``
    [>= T - 1, taps * D] are outputs of the target's layers. ``top_ids`` int64 and ``top_logprobs`` float32
    [T - prompt, k] are the likeliest tokens at each place of the answer, under its grammar. ``kind`` says what was
    asked for, ``group`` names the tool set or subject, and ``seed`` is None for a greedy answer.
    """

    tokens: Tensor
    prompt: int
    hidden: Tensor
    top_ids: Tensor
    top_logprobs: Tensor
    kind: str = ""
    group: str = ""
    held_out: bool = False
    seed: int | None = None

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt


def answer_path(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.safetensors"


def write_answer(path: Path, answer: Answer) -> None:
    """Write one file, whole or not at all."""
    tensors = {
        "tokens": answer.tokens.to(torch.int32),
        "hidden": answer.hidden.contiguous(),
        "top_ids": answer.top_ids.to(torch.int32),
        "top_logprobs": answer.top_logprobs,
    }
    about = {
        "prompt": answer.prompt,
        "kind": answer.kind,
        "group": answer.group,
        "held_out": answer.held_out,
        "seed": answer.seed,
    }
    part = path.with_suffix(".part")
    save_file(tensors, part, {"about": json.dumps(about)})
    os.replace(part, path)


def read_answer(path: Path) -> Answer:
    """Read one file; its hidden states stay on disk until they are used.

    Raises:
        ReleaseError: it is no such file.
    """
    try:
        with safe_open(path, framework="pt") as file:
            about: dict[str, Any] = json.loads(file.metadata()["about"])
            return Answer(
                tokens=file.get_tensor("tokens").long(),
                hidden=file.get_tensor("hidden"),
                top_ids=file.get_tensor("top_ids").long(),
                top_logprobs=file.get_tensor("top_logprobs"),
                **about,
            )
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ReleaseError(f"answers: {path} cannot be read ({error})") from error


@dataclass(frozen=True, slots=True)
class AnswerSet:
    """A folder of answers. ``about`` says which target gave them, and which of its layers are kept."""

    folder: Path
    about: Mapping[str, Any]
    paths: tuple[Path, ...]

    @classmethod
    def open(cls, folder: Path) -> AnswerSet:
        """Raises :class:`ReleaseError` if there are none."""
        try:
            about = json.loads((folder / SET_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ReleaseError(f"answers: {folder / SET_FILE} cannot be read ({error})") from error
        paths = tuple(sorted(folder.glob("*.safetensors")))
        if not paths:
            raise ReleaseError(f"answers: {folder} holds none")
        return cls(folder, about, paths)

    @property
    def target_layer_ids(self) -> tuple[int, ...]:
        return tuple(self.about["target_layer_ids"])

    def read(self) -> Iterator[Answer]:
        return (read_answer(path) for path in self.paths)


def begin_set(folder: Path, about: Mapping[str, Any]) -> None:
    """Make the folder, or go on in one that says the same of itself.

    Raises:
        ReleaseError: it holds answers of another target, or other layers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, text = folder / SET_FILE, json.dumps(about, indent=1) + "\n"
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise ReleaseError(f"answers: {folder} was made with other settings; see {path}, or choose another folder")
    path.write_text(text, encoding="utf-8")


def split(answers: Sequence[Answer]) -> tuple[list[Answer], list[Answer]]:
    """Those to train on, and those held out."""
    return [one for one in answers if not one.held_out], [one for one in answers if one.held_out]
