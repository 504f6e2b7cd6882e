"""``heptagram repo`` on files, without a server: what each command says, and that it can be said twice."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from heptagram_backend.cache import VARIABLE
from heptagram_backend.content import content_files, content_hash
from heptagram_backend.rollout.command import EXIT_FAILED, EXIT_OK, command
from heptagram_backend.rollout.files import RolloutFiles
from heptagram_backend.rollout.rollout import Rollout
from tests.formats.deepseek.tokenizers import write_checkpoint
from tests.rollout.test_rollout import MemoryControl, snapshot

Repo = Callable[..., tuple[int, Any, str]]
CONFIG = {"vocab_size": 129280, "num_attention_heads": 2, "hidden_size": 8, "num_hidden_layers": 1}


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    write_checkpoint(folder, "v4")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file({"a": torch.zeros(8)}, folder / "model.safetensors")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "repository"


@pytest.fixture
def repo(root: Path, capfd: pytest.CaptureFixture[str]) -> Repo:
    """Runs a command; its exit code, outcome and progress. Nobody answers at its ports."""

    def run(name: str, *arguments: object, where: Path = root) -> tuple[int, Any, str]:
        capfd.readouterr()
        ports = ["--http-port", "1", "--metrics-port", "1"]
        code = command([name, *map(str, arguments), "--model-repository", str(where), "--json", *ports])
        said = capfd.readouterr()
        return code, json.loads(said.out), said.err

    return run


def test_a_repository_is_made_once_and_records_its_checkpoint(repo: Repo, root: Path, checkpoint: Path) -> None:
    for _ in range(2):
        code, outcome, _ = repo("init", "--model", checkpoint)
        assert (code, outcome) == (EXIT_OK, {"repository": str(root)})
    release = RolloutFiles(root).release(1)
    assert release.checkpoint_hash == content_hash(content_files(checkpoint))
    assert release.vocabulary_width == CONFIG["vocab_size"]
    assert release.unrecorded == ()
    code, outcome, _ = repo("init", "--model", checkpoint, "--served-model-name", "other")
    assert code == EXIT_FAILED
    assert "exists; `heptagram repo add` puts" in outcome["error"]


def test_an_init_that_is_killed_leaves_nothing_and_can_be_sent_again(
    repo: Repo, root: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(self: RolloutFiles, version: int) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RolloutFiles, "pin_beside", killed)
        with pytest.raises(Killed):
            repo("init", "--model", checkpoint)
    assert not root.exists()
    assert repo("init", "--model", checkpoint)[0] == EXIT_OK


def test_a_dry_init_writes_nothing(repo: Repo, root: Path, checkpoint: Path) -> None:
    code, outcome, said = repo("init", "--model", checkpoint, "--dry-run")
    assert (code, outcome) == (EXIT_OK, {"repository": str(root), "dry_run": True})
    assert f"would write {root}" in said
    assert not root.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "--served-model-name", "new"), "would load generate"),
        (("canary", "1"), "would ask version 1 constrained, ordinary"),
        (("promote", "1"), "would version 1 is current already"),
        (("verify", "1"), "would read all of"),
        (("gc",), ""),
        (("status",), ""),
    ],
)
def test_a_dry_run_does_nothing_and_needs_no_server(
    repo: Repo, root: Path, checkpoint: Path, arguments: tuple[str, ...], said: str
) -> None:
    repo("init", "--model", checkpoint)
    before = snapshot(root)
    code, outcome, told = repo(*arguments, "--dry-run")
    assert code == EXIT_OK
    assert outcome["dry_run"] is True
    assert said in told
    assert snapshot(root) == before


def test_without_a_server_status_tells_the_files(repo: Repo, checkpoint: Path) -> None:
    repo("init", "--model", checkpoint, "--served-model-name", "m")
    [version] = repo("status")[1]["versions"]
    assert version == {
        "version": 1,
        "model": "m",
        "checkpoint": str(checkpoint),
        "current": True,
        "served": True,
        "weight": 100,
        "state": None,
        "in_flight": None,
        "ended": None,
    }


def test_a_command_that_found_no_server_is_explained_and_ended_by_the_next(
    repo: Repo, root: Path, checkpoint: Path
) -> None:
    repo("init", "--model", checkpoint)
    code, outcome, _ = repo("add", "--served-model-name", "new")
    assert code == EXIT_FAILED
    assert "tritonserver does not answer" in outcome["error"]
    assert "`add` of version 2 was cut short; the next command has it undone" in repo("status")[1]["pending"]
    files = RolloutFiles(root)
    control = MemoryControl(files)
    Rollout(files, control, check=str, fits=str, report=str).recover()
    assert repo("status")[1]["pending"] is None
    assert files.versions() == [1]


def test_verify_reads_what_a_load_does_not(repo: Repo, checkpoint: Path) -> None:
    save_file({"a": torch.zeros(1 << 20)}, checkpoint / "model.safetensors")
    repo("init", "--model", checkpoint)
    assert repo("verify", 1)[:2] == (EXIT_OK, {"version": 1, "warnings": []})
    weights = bytearray((checkpoint / "model.safetensors").read_bytes())
    weights[(1 << 20) + 5000] ^= 1
    (checkpoint / "model.safetensors").write_bytes(weights)
    code, outcome, _ = repo("verify", 1)
    assert code == EXIT_FAILED
    assert "checkpoint: the release was written for sha256:" in outcome["error"]


def test_verify_says_what_an_old_file_does_not(repo: Repo, root: Path, checkpoint: Path) -> None:
    repo("init", "--model", checkpoint)
    path = root / "generate" / "1" / "release.yaml"
    kept = [line for line in path.read_text().splitlines() if not line.startswith(("checkpoint_hash", "created_at"))]
    path.write_text("\n".join(kept))
    assert repo("verify", 1)[1]["warnings"] == ["not recorded: checkpoint_hash", "not recorded: created_at"]


def test_paths_outside_ascii_are_refused_before_anything_is_written(
    repo: Repo, root: Path, checkpoint: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "modèles"
    code, outcome, _ = repo("init", "--model", checkpoint, where=elsewhere)
    assert (code, elsewhere.exists()) == (EXIT_FAILED, False)
    assert "the model repository" in outcome["error"]
    assert "ASCII paths only" in outcome["error"]
    checkpoint.rename(elsewhere)
    code, outcome, _ = repo("init", "--model", elsewhere)
    assert (code, root.exists()) == (EXIT_FAILED, False)
    assert f"the checkpoint {elsewhere}" in outcome["error"]


def test_a_version_with_another_drafter_records_it(repo: Repo, root: Path, checkpoint: Path) -> None:
    repo("init", "--model", checkpoint)
    (checkpoint / "drafter").mkdir()
    save_file({"d": torch.zeros(8)}, checkpoint / "drafter" / "model.safetensors")
    plan = repo("add", "--engine", json.dumps({"drafter": "drafter"}), "--dry-run")
    assert plan[:2] == (EXIT_OK, {"version": 2, "dry_run": True})
    repo("add", "--engine", json.dumps({"drafter": "drafter"}))
    release = RolloutFiles(root).release(2)
    assert release.drafter_hash == content_hash(content_files(checkpoint / "drafter"))
    assert release.checkpoint_hash == RolloutFiles(root).release(1).checkpoint_hash


def test_a_version_of_another_model_has_not_the_drafter_and_adapter_of_the_one_before(
    repo: Repo, root: Path, checkpoint: Path, tmp_path: Path
) -> None:
    (checkpoint / "drafter").mkdir()
    save_file({"d": torch.zeros(8)}, checkpoint / "drafter" / "model.safetensors")
    repo("init", "--model", checkpoint, "--engine", json.dumps({"drafter": "drafter"}))
    path = root / "generate" / "1" / "release.yaml"
    path.write_text(path.read_text() + f"adapter: {tmp_path}\nadapter_hash: {'sha256:' + '0' * 64}\n")
    other = tmp_path / "other"
    shutil.copytree(checkpoint, other)
    repo("add", "--model", other)
    release = RolloutFiles(root).release(2)
    assert (release.checkpoint, release.adapter, release.adapter_hash) == (str(other), None, None)
    assert (release.engine.drafter, release.drafter_hash) == (None, None)
    assert release.unrecorded == ()
