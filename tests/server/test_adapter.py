"""A model with an adapter on the real server: merged before the start, found again by both models, DSML spoken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from jsonschema import Draft202012Validator
from safetensors.torch import save_file

from heptagram_backend.adapter import DOWN, ROWS, UP, WEIGHTS_FILE, AdapterConfig
from heptagram_backend.checkpoint import resolve
from heptagram_backend.merge import weights_digest
from heptagram_backend.release import Release
from heptagram_backend.server.model import values_for
from heptagram_backend.server.repository import Overrides, project_repository, write_repository
from heptagram_client import Client
from tests.formats import smollm2
from tests.server.test_families import REQUEST, SCHEMA
from tests.server_fixture import running_server
from tests.targets.tiny import save_tiny

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


def write_adapted(folder: Path) -> tuple[Path, Path]:
    """A tiny checkpoint with SmolLM2's tokenizer, and an adapter of one of its layers."""
    checkpoint = save_tiny(folder / "tiny", "llama", vocab_size=49_152)
    shutil.copytree(smollm2.folder(), checkpoint, dirs_exist_ok=True)
    adapter = folder / "adapter"
    adapter.mkdir()
    layer = "model.layers.1.self_attn.q_proj"
    tensors = {f"{layer}.{UP}": torch.ones(64, 2), f"{layer}.{DOWN}": torch.ones(2, 64), ROWS: torch.ones(1, 64)}
    save_file(tensors, adapter / WEIGHTS_FILE)
    AdapterConfig(weights_digest(checkpoint), "chatml_dsml", 2, 0.1, smollm2.DSML_TOKEN, (4,)).save(adapter)
    return checkpoint, adapter


def test_an_adapted_model_is_served_in_the_format_it_was_taught(tmp_path: Path) -> None:
    checkpoint, adapter = write_adapted(tmp_path)
    given = Overrides(release={"adapter": str(adapter)})
    values = values_for(str(checkpoint), resolve(str(checkpoint), str(adapter)), given)
    repository = write_repository(project_repository(), values)
    assert Release.load(repository / "generate" / "1").adapter == str(adapter)
    with running_server(repository) as process, Client(process.address.grpc_url) as client:
        message = client.complete(REQUEST)
    [call] = message.tool_calls
    Draft202012Validator(SCHEMA).validate(json.loads(call.arguments))
