"""A whole run of ``heptagram train-adapter``: checkpoint, tokenizer, ordinary talk, training, the adapter's files."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import save_file

from heptagram_backend.adapter import WEIGHTS_FILE, AdapterConfig, rename_tokens
from heptagram_backend.formats import load_format
from heptagram_backend.merge import weights_digest
from heptagram_backend.targets.loading import load_model
from heptagram_backend.tokenizer import CheckpointTokenizer
from heptagram_backend.training.chat import chat_examples
from heptagram_backend.training.encode import Encoder
from heptagram_backend.training.lora import Adapted
from heptagram_backend.training.prompts import Prompts
from heptagram_backend.training.train import Plan, Progress, Trainer

FORMAT: Final = "chatml_dsml"
_SCALE: Final = 2.0


@dataclass(frozen=True, slots=True)
class Setup:
    """What is adapted, and where to; ``control_tokens`` as in :class:`heptagram_backend.adapter.AdapterConfig`."""

    checkpoint: Path
    folder: Path
    rank: int = 16
    seed: int = 0
    dtype: str = "bfloat16"
    control_tokens: Mapping[str, str] = field(default_factory=dict)


def train(setup: Setup, plan: Plan, report: Callable[[str], object], *, until: int | None = None) -> None:
    """Train to the end of the plan, going on where the folder's state is, and write the adapter.

    Raises:
        ReleaseError: the checkpoint cannot be adapted.
    """
    setup.folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizer_of(setup)
    encoder = Encoder(load_format(FORMAT), tokenizer)
    model = load_model(setup.checkpoint, dtype=setup.dtype, attn_implementation="eager")
    chat = chat_examples(setup.folder / "chat.jsonl", model, encoder, report)
    rows = [token for text in setup.control_tokens.values() if (token := tokenizer.token_id(text)) is not None]
    adapted = Adapted(model, rank=setup.rank, scale=_SCALE, rows=rows, seed=setup.seed)
    trainer = Trainer(adapted, encoder, Prompts(setup.seed, chat), plan, setup.folder)
    if trainer.resume():
        report(f"going on behind step {trainer.step}")
    trainer.run(_reporter(report, plan), until=until)
    config = AdapterConfig(
        base=weights_digest(setup.checkpoint),
        format=FORMAT,
        rank=setup.rank,
        scale=_SCALE,
        control_tokens=setup.control_tokens,
        rows=rows,
        training={**asdict(plan), "step": trainer.step, "seed": setup.seed},
    )
    save(setup.folder, adapted, config)
    report(f"the adapter is in {setup.folder}")


def tokenizer_of(setup: Setup) -> CheckpointTokenizer:
    """The checkpoint's tokenizer with the new names of its control tokens; its files are copied to the folder."""
    folder = setup.folder / "tokenizer"
    if not folder.exists():
        part = setup.folder / "tokenizer.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        for path in setup.checkpoint.iterdir():
            if path.suffix in (".json", ".jinja"):
                shutil.copy(path, part / path.name)
        rename_tokens(part, setup.control_tokens)
        part.rename(folder)
    return CheckpointTokenizer(folder)


def save(folder: Path, adapted: Adapted, config: AdapterConfig) -> None:
    """Write the adapter's two files; the matrices as bfloat16."""
    tensors = {name: value.detach().to(torch.bfloat16).contiguous() for name, value in adapted.parameters.items()}
    save_file(tensors, folder / WEIGHTS_FILE)
    config.save(folder)


def _reporter(report: Callable[[str], object], plan: Plan) -> Callable[[Progress], object]:
    began, seen = time.monotonic(), 0

    def tell(progress: Progress) -> None:
        nonlocal seen
        seen += 1
        left = (time.monotonic() - began) / seen * (plan.steps - progress.step)
        report(
            f"step {progress.step}/{plan.steps} loss {progress.loss:.3f} right {progress.right:.3f} "
            f"{progress.tokens / progress.seconds:.0f} tok/s, {left / 60:.0f} min left"
        )

    return tell
