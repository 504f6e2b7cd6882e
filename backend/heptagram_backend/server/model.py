"""What ``release.yaml`` says about a model that ``heptagram serve --model`` was given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from heptagram_backend.adapter import AdapterConfig
from heptagram_backend.checkpoint import EMBEDDED, EMBEDDED_PREFIX, SHIPPED_PREFIX, adapter_folder, resolve
from heptagram_backend.formats import load_format
from heptagram_backend.recorded import recorded_adapter, recorded_checkpoint, recorded_drafter
from heptagram_backend.release import EngineOptions
from heptagram_backend.server.repository import Overrides

DEFAULT_FORMAT: Final = "chatml_json"


def values_for(model: str, checkpoint: Path, given: Overrides) -> Overrides:
    """The values of a release that serves ``model``, resolved to the folder ``checkpoint``; those ``given`` go first.

    Raises:
        ReleaseError: the checkpoint's tokenizer is none of the format's.
    """
    from heptagram_backend.tokenizer import CheckpointTokenizer  # takes a second, and only this needs it

    embedded = EMBEDDED.get(model.removeprefix(EMBEDDED_PREFIX)) if model.startswith(EMBEDDED_PREFIX) else None
    tokenizer = CheckpointTokenizer(checkpoint)
    engine = {**context_that_fits(checkpoint), **(embedded.engine if embedded else {}), **given.engine}
    release = {
        **_names(model),
        "format": DEFAULT_FORMAT,
        "vocabulary": tokenizer.vocabulary_hash,
        **recorded_checkpoint(model, checkpoint),
        **(recorded_drafter(engine["drafter"], checkpoint) if "drafter" in engine else {}),
        **(embedded.release if embedded else {}),
        **_adapted(given.adapter),
        **{key: value for key, value in given.release.items() if key != "adapter"},
    }
    load_format(release["format"]).check(tokenizer)
    return Overrides(release, engine)


def changed_values(given: Overrides, checkpoint: str, adapter: str | None) -> Overrides:
    """``given``, and what is to be recorded anew because of it.

    Args:
        given: what is changed.
        checkpoint: of the version that is changed.
        adapter: of that version.

    Raises:
        ReleaseError: there is no such checkpoint, adapter or drafter.
    """
    recorded: dict[str, Any] = {}
    checkpoint = given.release.get("checkpoint", checkpoint)
    if "checkpoint" in given.release:
        recorded |= recorded_checkpoint(checkpoint, resolve(checkpoint))
    if "drafter" in given.engine:
        recorded |= recorded_drafter(
            given.engine["drafter"], resolve(checkpoint, given.release.get("adapter", adapter))
        )
    return Overrides({**recorded, **given.release, **_adapted(given.adapter)}, given.engine)


def _adapted(adapter: str | None) -> dict[str, Any]:
    """The values of a checkpoint with an adapter: its folder, for good, its content, and the format it was taught."""
    if adapter is None:
        return {}
    folder = adapter_folder(adapter)
    place = adapter if adapter.startswith(SHIPPED_PREFIX) else str(folder)
    return {"adapter": place, **recorded_adapter(place), "format": AdapterConfig.load(folder).format}


def _names(model: str) -> dict[str, Any]:
    if model.startswith(EMBEDDED_PREFIX):
        return {"served_model_name": model.removeprefix(EMBEDDED_PREFIX), "checkpoint": model}
    path = Path(model).expanduser().absolute()
    name = path.stem if path.suffix == ".gguf" else path.name
    return {"served_model_name": name, "checkpoint": str(path)}


def context_that_fits(checkpoint: Path) -> dict[str, Any]:
    """The engine's value for a checkpoint that has fewer positions than the default context; empty for the others."""
    try:
        positions = json.loads((checkpoint / "config.json").read_text(encoding="utf-8")).get("max_position_embeddings")
    except (OSError, ValueError, AttributeError):
        return {}  # the engine says what is wrong with it
    short = isinstance(positions, int) and 0 < positions < EngineOptions().max_model_len
    return {"max_model_len": positions} if short else {}
