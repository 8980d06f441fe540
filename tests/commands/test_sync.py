"""Copies of run folders: what is copied, what is left out, and what the manifest says."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from etils import epath

from jaxrl.commands import sync as job
from jaxrl.config import ConfigError
from jaxrl.config.errors import RunError
from jaxrl.runs.checkpoint import Checkpointer
from jaxrl.runs.storage import bucket, copy
from jaxrl.runs.storage.copy import sync
from tests.runs.checkpoint.checkpoints import files_of, save_run
from tests.runs.storage.gcs_server import GcsServer

FILES = {"config.json": b"{}\n", "tensorboard/events": bytes(3_000), "metrics.jsonl": b"1\n2\n"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        file = tmp_path / "run" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return tmp_path / "run"


def quiet(line: str) -> None:
    del line


def manifest(folder: Path) -> dict[str, dict[str, object]]:
    return json.loads((folder / "manifest.json").read_text())["files"]


def test_everything_is_copied_and_listed(run: Path, tmp_path: Path) -> None:
    told: list[str] = []
    report = sync(str(run), str(tmp_path / "copy"), tell=told.append)
    assert report.copied == tuple(sorted(FILES))
    assert report.size == sum(map(len, FILES.values()))
    assert len(told) == 3
    copied = files_of(tmp_path / "copy")
    del copied["manifest.json"]
    assert copied == FILES
    listed = manifest(tmp_path / "copy")
    assert list(listed) == sorted(FILES)
    for name, content in FILES.items():
        assert listed[name]["size"] == len(content)
        assert listed[name]["sha256"] == hashlib.sha256(content).hexdigest()
        assert str(listed[name]["time"]).endswith("+00:00")


@pytest.mark.parametrize("inside", ["", "copy", "link/copy"])
def test_a_folder_is_not_copied_into_itself(run: Path, inside: str) -> None:
    (run / "link").symlink_to(run)
    with pytest.raises(ConfigError, match=r"`DESTINATION` \(=.*\) must lie outside of `SOURCE` \(=.*\)$"):
        sync(str(run), str(run / inside), tell=quiet)
    sync(str(run), f"{run}-copy", tell=quiet)  # Not inside, though its name begins with the other's.


def test_only_what_has_changed_is_copied_again(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    sync(str(run), str(copy), tell=quiet)
    before = {f: f.stat().st_mtime_ns for f in copy.rglob("*")}
    assert sync(str(run), str(copy), tell=quiet).copied == ()
    assert {f: f.stat().st_mtime_ns for f in copy.rglob("*")} == before

    with (run / "metrics.jsonl").open("a") as stream:
        stream.write("3\n")
    (copy / "config.json").unlink()  # lost there
    assert sync(str(run), str(copy), tell=quiet).copied == ("config.json", "metrics.jsonl")
    assert (copy / "metrics.jsonl").read_bytes() == b"1\n2\n3\n"

    (run / "metrics.jsonl").write_bytes(b"1\n2\n4\n")  # the same size
    os.utime(run / "metrics.jsonl", (1e9, 1e9))
    assert sync(str(run), str(copy), tell=quiet).copied == ("metrics.jsonl",)
    (run / "config.json").unlink()
    assert sync(str(run), str(copy), tell=quiet).copied == ()
    assert (copy / "config.json").exists()  # nothing is deleted


def test_a_dry_run_changes_nothing(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert job.main(["", str(run), str(tmp_path / "copy"), "--dry-run"]) == 0
    assert not (tmp_path / "copy").exists()
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["would", "copy", "3", "B", "config.json"]
    assert said[-1] == "3 files (3.01 kB) would be copied, 0 unchanged"
    assert job.main(["", str(run), str(tmp_path / "copy")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "3 files (3.01 kB) copied, 0 unchanged"
    assert job.main(["", str(run), str(tmp_path / "copy"), "--dry-run"]) == 0
    assert capsys.readouterr().out == "0 files (0 B) would be copied, 3 unchanged\n"


def test_what_is_passing_is_left_out(run: Path, tmp_path: Path) -> None:
    passing = [".lock", ".writable", ".config.json.part", "metrics.jsonl.tmp", "checkpoints/5.deleted/x"]
    for name in [*passing, "checkpoints/7.orbax-checkpoint-tmp-1/state/x"]:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("")
    (run / "link").symlink_to(tmp_path)
    (run / "link2").symlink_to("/etc/passwd")
    assert sync(str(run), str(tmp_path / "copy"), tell=quiet).copied == tuple(sorted(FILES))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["", "b"], "two folders are needed, SOURCE and DESTINATION; 1 were given"),
        ([], "two folders are needed, SOURCE and DESTINATION; 0 were given"),
        (["a", "b", "c"], "two folders are needed, SOURCE and DESTINATION; 3 were given"),
        (["a", "b", "--delete"], "unknown flag `--delete`; valid: --dry-run, --debug"),
        (["none", "copy"], "`SOURCE` (='none') must be a folder with files; there is none"),
        (
            ["ftp://a/b", "copy"],
            "`SOURCE` (='ftp://a/b') must be a local folder, gs://bucket/folder or s3://",
        ),
        (["gs://none/a", "copy"], "`SOURCE` (='gs://none/a') cannot be used: there is no bucket gs://none; "),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str], gcs: GcsServer
) -> None:
    assert job.main(["", *arguments]) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"error: {problem}")
    assert (len(said.err.splitlines()), said.out) == (1, "")


def test_a_spoilt_manifest_is_told(run: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"files": [1]}')
    with pytest.raises(ConfigError, match=r"manifest.json is no manifest of this program: delete it to copy"):
        sync(str(run), str(tmp_path), tell=quiet)


def test_a_copy_that_was_cut_off_goes_on(run: Path, gcs: GcsServer) -> None:
    gcs.rule = lambda request: 403 if request.writes and "events" in request.name else None
    with pytest.raises(
        RunError, match=r"Forbidden: .*; 2 of 3 files copied; run the same command to continue$"
    ):
        sync(str(run), "gs://runs/copy", tell=quiet)
    gcs.rule = lambda request: None
    assert sync(str(run), "gs://runs/copy", tell=quiet).copied == ("tensorboard/events",)
    assert gcs.files("runs", "copy/").items() >= FILES.items()


@pytest.mark.slow
def test_a_run_moves_to_a_bucket_and_back(tmp_path: Path, gcs: GcsServer) -> None:
    save_run(tmp_path / "run", 5, 10)
    sync(str(tmp_path / "run"), "gs://runs/mine", tell=quiet)
    # What a local folder's name says, a file says there.
    checkpoints = Checkpointer("gs://runs/mine/checkpoints", keep=2)
    assert checkpoints.intact_steps() == (5, 10)
    checkpoints.close()
    assert sync(str(tmp_path / "run"), "gs://runs/mine", tell=quiet).copied == ()
    sync("gs://runs/mine", str(tmp_path / "back"), tell=quiet)
    assert Checkpointer(str(tmp_path / "back" / "checkpoints")).intact_steps() == (5, 10)
    assert sync("gs://runs/mine", str(tmp_path / "back"), tell=quiet).copied == ()
    assert epath.Path("gs://runs/mine/manifest.json").exists()


def test_a_file_that_vanishes_while_a_run_trains_is_passed_over(run: Path, tmp_path: Path) -> None:
    def tell(line: str) -> None:
        del line
        (run / "metrics.jsonl").unlink(missing_ok=True)

    report = sync(str(run), str(tmp_path / "copy"), tell=tell)
    assert report.vanished == ("metrics.jsonl",)
    assert report.copied == ("config.json", "tensorboard/events")
    assert set(files_of(tmp_path / "copy")) == {"config.json", "tensorboard/events", "manifest.json"}


@pytest.mark.parametrize("name", ["mine/../../x", "mine/sub/../../../x", "mine//etc/x"])
def test_names_that_lead_out_of_the_folder_are_refused(name: str, tmp_path: Path, gcs: GcsServer) -> None:
    gcs.put("runs", "mine/config.json", b"{}")
    gcs.put("runs", name, b"evil")
    with pytest.raises(
        ConfigError, match=r"`SOURCE` \(='gs://runs/mine'\) holds '.*x', which leads out of the folder"
    ):
        sync("gs://runs/mine", str(tmp_path / "a" / "copy"), tell=quiet)
    assert not list(tmp_path.iterdir())


def test_links_in_the_destination_are_not_followed(run: Path, tmp_path: Path) -> None:
    outside, copy = tmp_path / "outside", tmp_path / "copy"
    outside.mkdir()
    copy.mkdir()
    (copy / "tensorboard").symlink_to(outside)
    with pytest.raises(RunError, match="it is a symbolic link, which is not followed"):
        sync(str(run), str(copy), tell=quiet)
    (copy / "tensorboard").unlink()
    for name in ("config.json", ".config.json.tmp", "metrics.jsonl", "manifest.json"):
        (copy / name).unlink(missing_ok=True)
        (copy / name).symlink_to(outside / "file")
    (copy / "manifest.json").unlink()
    sync(str(run), str(copy), tell=quiet)
    assert list(outside.iterdir()) == []
    assert (copy / "config.json").read_bytes() == FILES["config.json"]
    assert not (copy / "config.json").is_symlink()


def test_a_dry_run_needs_no_credentials(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise PermissionError("Unable to locate credentials")

    def open_url(name: str, url: str, writable: bool) -> Any:
        if url.startswith("s3://"):
            bucket.within_timeout(f"`{name}` (={url!r}) cannot be", refuse)
        return bucket.open_url(name, url, writable)

    monkeypatch.setattr(copy, "open_url", open_url)
    assert job.main(["", str(run), "s3://runs/mine", "--dry-run"]) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.endswith("Unable to locate credentials; taken for empty")
    assert last.endswith(" would be copied, 0 unchanged")
    assert job.main(["", str(run), "s3://runs/mine"]) == 2
