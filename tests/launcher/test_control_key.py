"""The key to model control: what it may be, where it is found, that it does not stay in a command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from heptagram_backend.errors import LaunchError
from heptagram_backend.server.control_key import Restricted, file_name, find_key, read_key
from heptagram_backend.server.segments import SHARED_MEMORY, Segments
from tests.children import child

PORT = 1  # nobody's


@pytest.fixture
def segments() -> Iterator[Segments]:
    made = Segments()
    yield made
    made.remove()


@pytest.mark.parametrize("text", ["k" * 16, "A.b_c~d-0123456789\n"])
def test_a_key_of_the_operators(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    assert read_key(path) == text.strip()


@pytest.mark.parametrize(
    "text", ["", "short", "k" * 257, "with a blank in it", "cut=at:this,and:that", "schlüssel" * 3]
)
def test_what_is_no_key(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(LaunchError, match=f"--control-key-file {path}: "):
        read_key(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="No such file"):
        read_key(tmp_path / "none")


def test_it_is_found_by_address_and_read_by_its_user_only(segments: Segments) -> None:
    segments.keep(file_name("localhost", PORT), "the key")
    assert find_key("127.0.0.1", PORT) == find_key("localhost", PORT) == "the key"
    assert find_key("127.0.0.1", PORT + 1) is None
    assert find_key("127.0.0.2", PORT) is None
    [path] = SHARED_MEMORY.glob(f"{segments.prefix}control-*")
    assert path.stat().st_mode & 0o777 == 0o600
    segments.remove()
    assert find_key("127.0.0.1", PORT) is None


def test_the_newest_server_counts(segments: Segments) -> None:
    segments.keep(file_name("127.0.0.1", PORT), "of one that was killed")
    newer = Segments()
    newer.keep(file_name("127.0.0.1", PORT), "of the next")
    try:
        assert find_key("127.0.0.1", PORT) == "of the next"
    finally:
        newer.remove()


def test_files_of_others_are_not_read(segments: Segments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody may write into the folder: a file of another user's, or a link of his to one of ours, is no key."""
    name = file_name("127.0.0.1", PORT)
    ours = tmp_path / "ours"
    ours.write_text("a secret of another kind")
    link = SHARED_MEMORY / f"{segments.prefix}{name}"
    link.symlink_to(ours)
    assert find_key("127.0.0.1", PORT) is None
    link.unlink()
    segments.keep(name, "the key")
    assert find_key("127.0.0.1", PORT) == "the key"
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert find_key("127.0.0.1", PORT) is None


def test_the_words_leave_the_command_line() -> None:
    restricted = Restricted()
    words = [option.rpartition("=")[2] for option in restricted.options()]
    program = "import sys; print('read', flush=True); sys.stdin.read(); print(*sys.argv[1:])"
    command = [sys.executable, "-c", program, *restricted.options()]
    with child(command, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        assert all(word in " ".join(psutil.Process(process.pid).cmdline()) for word in words)
        restricted.conceal(process.pid)
        shown = psutil.Process(process.pid).cmdline()
        assert shown[:3] == command[:3]
        assert not any(word in " ".join(shown) for word in words)
        process.stdin.close()
        assert process.stdout.read().split() == restricted.options(), "the child lost what it had read"
    assert not any(word in repr(restricted) for word in words)
