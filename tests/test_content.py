"""Hashes of checkpoints: what they tell apart, what a load reads of them, and what is read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from heptagram_backend.cache import VARIABLE
from heptagram_backend.content import check_content, content_files, content_hash, is_content_hash
from heptagram_backend.errors import ReleaseError

MANY = 5 << 20


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text('{"model": 1}')
    (folder / "model.safetensors").write_bytes(bytes(MANY))
    return folder


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def check(recorded: str, folder: Path, *, whole: bool = False) -> None:
    check_content("checkpoint", recorded, content_files(folder), whole=whole)


def test_a_hash_is_of_what_is_read_and_not_of_its_place(folder: Path, tmp_path: Path) -> None:
    recorded = content_hash(content_files(folder))
    assert is_content_hash(recorded)
    (folder / "README.md").write_text("new")
    folder.rename(tmp_path / "moved")
    check(recorded, tmp_path / "moved")
    check(recorded, tmp_path / "moved", whole=True)


@pytest.mark.parametrize(
    ("file", "place"), [("config.json", 0), ("tokenizer.json", 5), ("model.safetensors", 9), ("model.safetensors", -1)]
)
def test_a_load_sees_another_configuration_tokenizer_head_and_end(folder: Path, file: str, place: int) -> None:
    recorded = content_hash(content_files(folder))
    flip(folder / file, place)
    with pytest.raises(
        ReleaseError, match=r"checkpoint: the release was written for sample:\w{64}, but .* sample:\w{64}"
    ):
        check(recorded, folder)


def test_a_load_sees_a_shorter_file_and_other_weights(folder: Path) -> None:
    recorded = content_hash(content_files(folder))
    weights = folder / "model.safetensors"
    for content in (bytes(MANY - 1), bytes(MANY // 2) + bytes([1]) * (MANY // 2)):
        weights.write_bytes(content)
        with pytest.raises(ReleaseError, match="sample:"):
            check(recorded, folder)


def test_a_byte_between_the_samples_is_found_where_all_are_read(folder: Path) -> None:
    recorded = content_hash(content_files(folder))
    flip(folder / "model.safetensors", (1 << 20) + 5000)
    check(recorded, folder)
    with pytest.raises(ReleaseError, match=r"sha256:\w{64}, but .* sha256:\w{64}"):
        check(recorded, folder, whole=True)


def test_without_a_sample_all_is_compared(folder: Path) -> None:
    whole = content_hash(content_files(folder)).partition("+")[0]
    check(whole, folder)
    flip(folder / "model.safetensors", (1 << 20) + 5000)
    with pytest.raises(ReleaseError, match="sha256:"):
        check(whole, folder)


def test_a_file_is_read_once_until_it_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = content_hash(content_files(folder))
    read: list[str] = []

    def digest(path: Path) -> str:
        read.append(path.name)
        return "0" * 64

    monkeypatch.setattr("heptagram_backend.content.file_digest", digest)
    assert content_hash(content_files(folder)).partition("+")[0] == first.partition("+")[0]
    assert "model.safetensors" not in read
    (folder / "model.safetensors").write_bytes(bytes(MANY + 1))
    content_hash(content_files(folder))
    assert "model.safetensors" in read


def test_a_single_file_may_have_any_name(folder: Path) -> None:
    recorded = content_hash([folder / "model.safetensors"])
    other = (folder / "model.safetensors").rename(folder / "other.safetensors")
    check_content("adapter", recorded, content_files(other))


def test_what_is_not_there_is_no_content(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="there is nothing"):
        check("sha256:" + "0" * 64, tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["", "sha256:0", "md5:" + "0" * 64, "sha256:" + "g" * 64, "sha256:" + "0" * 64 + "+x"])
def test_what_is_no_hash(text: str) -> None:
    assert not is_content_hash(text)
