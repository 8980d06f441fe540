"""Files of checkpoints, moved and deleted so that a kill in between leaves nothing that passes for one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from etils import epath

from jaxrl.runs.checkpoint import checkpoint_files, checkpoint_folder
from tests.runs.checkpoint.checkpoints import files_of


def folder(path: Path) -> Path:
    (path / "state" / "d").mkdir(parents=True)
    (path / "state" / "d" / "data").write_bytes(b"12345")
    (path / "commit_success.txt").write_text("yes")
    (path / "state" / "commit_success.txt").write_text("yes")
    return path


@pytest.mark.parametrize(
    ("name", "expected"),
    [("0", True), ("1200", True), ("007", False), ("-1", False), ("1e3", False), ("²", False), ("", False)],
)
def test_names_of_steps(name: str, expected: bool) -> None:
    assert checkpoint_files.is_step(name) is expected


def test_size_counts_files_below_and_follows_no_link(tmp_path: Path) -> None:
    path = folder(tmp_path / "5")
    (tmp_path / "large").write_bytes(bytes(1000))
    (path / "link").symlink_to(tmp_path / "large")
    (tmp_path / "6").symlink_to(path)
    assert checkpoint_files.size(epath.Path(path)) == 5 + 2 * 3
    assert checkpoint_files.size(epath.Path(tmp_path / "6")) == 0


def test_setting_aside_keeps_everything(tmp_path: Path) -> None:
    for expected in ("5", "5-1", "5-2"):
        path = folder(tmp_path / "5")
        before = files_of(path)
        target = checkpoint_files.set_aside(epath.Path(path), epath.Path(tmp_path / "corrupt"))
        assert target == tmp_path / "corrupt" / expected
        assert files_of(Path(target)) == before
        assert not path.exists()


def test_a_copy_is_complete_only_at_its_end(tmp_path: Path) -> None:
    # What setting aside comes to on gs://, where nothing can be renamed.
    source = folder(tmp_path / "5")
    checkpoint_files.copy_files(epath.Path(source), epath.Path(tmp_path / "copy"))
    assert files_of(tmp_path / "copy") == files_of(source)
    written = sorted((tmp_path / "copy").rglob("*"), key=lambda file: file.stat().st_mtime_ns)
    assert [file.name for file in written if file.is_file()][-2:] == ["commit_success.txt"] * 2


def test_removing_survives_what_an_earlier_kill_left(tmp_path: Path) -> None:
    folder(tmp_path / "5.deleted")
    checkpoint_files.remove(epath.Path(folder(tmp_path / "5")))
    assert list(tmp_path.iterdir()) == []


def test_a_kill_while_removing_leaves_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    path = epath.Path(folder(tmp_path / "5"))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoint_files.remove(path)
    contents = checkpoint_folder.find(epath.Path(tmp_path))
    assert contents.steps == {}
    assert [left.name for left in contents.unfinished] == ["5.deleted"]


def test_removing_never_goes_through_a_link(tmp_path: Path) -> None:
    outside = folder(tmp_path / "outside")
    (tmp_path / "5.deleted").symlink_to(outside)
    for name in ("5.deleted", folder(tmp_path / "5").name):
        with pytest.raises(OSError, match="a symbolic link is not followed: '.*/5.deleted'"):
            checkpoint_files.remove(epath.Path(tmp_path / name))
    assert len(files_of(outside)) == 3
