"""Which values of a release follow from the model that is to be served."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heptagram_backend.adapter import WEIGHTS_FILE, AdapterConfig
from heptagram_backend.checkpoint import EMBEDDED
from heptagram_backend.content import content_files, content_hash
from heptagram_backend.errors import ReleaseError
from heptagram_backend.formats import FORMATS
from heptagram_backend.release import Release
from heptagram_backend.server.model import values_for
from heptagram_backend.server.repository import Overrides, project_repository, releases_of
from tests.formats.deepseek.tokenizers import tokenizer, write_checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path, "v4")
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 500, "vocab_size": 129280}')
    return tmp_path


def test_a_folder_has_the_default_format_and_its_own_vocabulary(checkpoint: Path) -> None:
    assert values_for(str(checkpoint), checkpoint, Overrides()) == Overrides(
        release={
            "served_model_name": checkpoint.name,
            "checkpoint": str(checkpoint),
            "format": "chatml_json",
            "vocabulary": tokenizer("v4").vocabulary_hash,
            "vocabulary_width": 129280,
            "checkpoint_hash": content_hash(content_files(checkpoint)),
        },
        engine={"max_model_len": 500},
    )


def test_an_embedded_model_brings_its_format_and_what_it_needs(checkpoint: Path) -> None:
    values = values_for("embedded:tiny-deepseek-v4", checkpoint, Overrides(engine={"max_model_len": 100}))
    assert values.release["served_model_name"] == "tiny-deepseek-v4"
    assert values.release["checkpoint"] == "embedded:tiny-deepseek-v4"
    assert values.release["format"] == "deepseek_v4"
    assert values.engine == {"max_model_len": 100, "dtype": "float32"}


def test_every_embedded_model_has_values_that_make_a_release() -> None:
    for shipped in EMBEDDED.values():
        assert shipped.release["format"] in FORMATS
        release = {"served_model_name": "x", "checkpoint": "x", **shipped.release, "engine": dict(shipped.engine)}
        assert Release.parse(release).format == shipped.release["format"]
    shipped_releases = releases_of(project_repository()).values()
    assert {release.checkpoint for release in shipped_releases} <= {f"embedded:{name}" for name in EMBEDDED}


def test_a_format_of_another_tokenizer_is_refused_before_anything_starts(checkpoint: Path) -> None:
    written = json.loads((checkpoint / "tokenizer.json").read_text())
    kept = [token for token in written["added_tokens"] if "DSML" not in token["content"]]
    (checkpoint / "tokenizer.json").write_text(json.dumps({**written, "added_tokens": kept}))
    chosen = Overrides(release={"format": "deepseek_v4"})
    with pytest.raises(ReleaseError, match="format: deepseek_v4 needs ｜DSML｜"):
        values_for(str(checkpoint), checkpoint, chosen)


def test_an_adapter_brings_the_format_that_it_was_taught(checkpoint: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / WEIGHTS_FILE).touch()
    AdapterConfig(base="sha256:0", format="chatml_dsml", rank=1, scale=1.0).save(adapter)
    values = values_for(str(checkpoint), checkpoint, Overrides(release={"adapter": str(adapter)}))
    assert (values.release["format"], values.release["adapter"]) == ("chatml_dsml", str(adapter))
    chosen = Overrides(release={"adapter": str(adapter), "format": "chatml_json"})
    assert values_for(str(checkpoint), checkpoint, chosen).release["format"] == "chatml_json"
    assert Release.parse(values.release).adapter == str(adapter)
