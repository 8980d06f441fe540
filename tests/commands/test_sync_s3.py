"""Copies to and from S3: the real client against moto's server. Needs the extra `s3` and moto[server]."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("s3fs", reason="needs the extra `s3` and moto[s3,server]")
pytest.importorskip("moto.server", reason="needs the extra `s3` and moto[s3,server]")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """S3 on this machine with the bucket `runs`; its address."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    yield url
    server.stop()


def run_sync(s3: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the client keeps threads and credentials."""
    env = os.environ | {
        "AWS_ENDPOINT_URL": s3,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    command = [sys.executable, "-m", "jaxrl", "sync", *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)


def make_bucket(s3: str) -> None:
    import urllib.request

    request = urllib.request.Request(f"{s3}/runs", method="PUT")
    urllib.request.urlopen(request).close()


@pytest.mark.slow
def test_there_and_back(s3: str, tmp_path: Path) -> None:
    make_bucket(s3)
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
        "1 files (3 B) copied, 1 unchanged",
    ]
    back = run_sync(s3, "s3://runs/mine", str(tmp_path / "back"))
    assert (back.returncode, back.stderr) == (0, "")
    for name in ("config.json", "tensorboard/events"):
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    again = run_sync(s3, "s3://runs/mine", str(tmp_path / "back"))
    assert again.stdout == "0 files (0 B) copied, 2 unchanged\n"


@pytest.mark.slow
def test_a_bucket_that_cannot_be_used_is_one_line(s3: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    missing = run_sync(s3, str(tmp_path), "s3://missing/mine")
    assert missing.returncode == 2
    assert missing.stderr == (
        "error: `DESTINATION` (='s3://missing/mine') cannot be used: there is no bucket s3://missing\n"
    )
    started = time.monotonic()
    nobody = run_sync("http://127.0.0.1:9", str(tmp_path), "s3://runs/mine")
    assert nobody.returncode == 2
    assert nobody.stderr.startswith("error: `DESTINATION` (='s3://runs/mine') cannot be re")
    assert len(nobody.stderr.splitlines()) == 1
    assert time.monotonic() - started < 30
