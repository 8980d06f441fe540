"""Copies to and from S3: the real client against moto's server. Needs the extra `s3` and moto[server]."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import processes
from tests.runs.storage.s3_server import s3_server

ROOT = Path(__file__).parents[2]


@pytest.fixture
def s3() -> Iterator[dict[str, str]]:
    with s3_server() as environment:
        yield environment


def run_sync(s3: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the client keeps threads and credentials."""
    return processes.run("-m", "jaxrl", "sync", *arguments, env=os.environ | s3, timeout=60)


@pytest.mark.slow
def test_there_and_back(s3: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "run" / "tensorboard").mkdir(parents=True)
    (tmp_path / "run" / "config.json").write_text("{}")
    (tmp_path / "run" / "tensorboard" / "events").write_bytes(os.urandom(6_000_000))
    dry = run_sync(s3, str(tmp_path / "run"), "s3://runs/mine", "--dry-run")
    assert (dry.returncode, dry.stderr) == (0, "")
    assert dry.stdout.splitlines()[-1] == "2 files (6.00 MB) would be copied, 0 unchanged"
    first = run_sync(s3, str(tmp_path / "run"), "s3://runs/mine")
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.splitlines()[-1] == "2 files (6.00 MB) copied, 0 unchanged"
    (tmp_path / "run" / "config.json").write_text("{ }")
    second = run_sync(s3, str(tmp_path / "run"), "s3://runs/mine")
    assert second.stdout.splitlines() == [
        "copied        3 B  config.json",
        "1 file (3 B) copied, 1 unchanged",
    ]
    back = run_sync(s3, "s3://runs/mine", str(tmp_path / "back"))
    assert (back.returncode, back.stderr) == (0, "")
    for name in ("config.json", "tensorboard/events"):
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    again = run_sync(s3, "s3://runs/mine", str(tmp_path / "back"))
    assert again.stdout == "0 files (0 B) copied, 2 unchanged\n"


@pytest.mark.slow
def test_what_would_be_copied_is_told_without_credentials(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    nobody = {
        "AWS_EC2_METADATA_DISABLED": "true",
        "HOME": str(tmp_path),
        "AWS_CONFIG_FILE": "",
        "PATH": os.defpath,
    }
    arguments = ("-m", "jaxrl", "sync", str(tmp_path), "s3://runs/mine")
    dry = processes.succeed(*arguments, "--dry-run", env=nobody, timeout=60)
    assert "Unable to locate credentials; taken for empty" in dry.stdout
    assert dry.stdout.splitlines()[-1] == "1 file (2 B) would be copied, 0 unchanged"
    assert processes.run(*arguments, env=nobody, timeout=60).returncode == 2
