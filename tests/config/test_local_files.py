"""Files are replaced whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxrl.config.local_files import is_remote, replace_text, replacing


def test_the_new_content_replaces_the_old(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    for text in ("longer than the next", "naïve"):
        replace_text(file, text)
        assert file.read_text("utf-8") == text
    assert list(tmp_path.iterdir()) == [file]


def test_an_interruption_leaves_the_old_content(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("old")

    def interrupted() -> None:
        with replacing(file) as stream:
            stream.write(b"half of the n")
            stream.flush()
            assert file.read_text() == "old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_addresses_are_remote() -> None:
    assert is_remote("gs://bucket/run")
    assert not is_remote(Path("runs/gs"))
