"""Standard output that is closed, full or unread: one line, or nothing, but no traceback."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from jaxrl import commands
from tests import processes

ROOT = Path(__file__).parents[2]
TINY = (
    *("--config=tests/faults/tiny.py", "--config.stop.steps=256", "--config.log.writers=('jsonl',)"),
    # What compiles soon: it remembers and normalises nothing.
    *("--config.network.core=none", "--config.normalize.rewards=false"),
    "--config.normalize.observations=false",
)


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "jaxrl", *arguments]
    return subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, timeout=120, check=False, **options)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [("train", "--help"), ("train", "ppo", "--print-config")])
def test_what_was_to_be_printed_and_could_not_is_an_error(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = run(*arguments, stdout=full)
    line = b"error: standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, line)


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = run("train", "--help", stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(("arguments", "code"), [(["docs", "replay"], 0), (["play"], 1)])
def test_commands_that_ask_for_a_terminal_take_closed_streams(
    arguments: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stdin", None)
    assert commands.run(["jaxrl", *arguments]) == code


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_page_is_shown_in_the_characters_that_there_are(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="ascii")
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stdout", stream)
    assert commands.run(["jaxrl", "docs", "selfplay"]) == 0
    assert b"Kocsis and Szepesv?ri 2006" in written.getvalue()


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_training_does_not_need_its_display(tmp_path: Path) -> None:
    said = tmp_path / "said.txt"
    with open("/dev/full", "w") as full, said.open("w") as stderr:
        arguments = ("-m", "jaxrl", "train", *TINY, f"--workdir={tmp_path}/full")
        code = processes.start(*arguments, stdout=full, stderr=stderr).wait(120)
    assert (code, said.read_text()) == (0, "")
    assert (tmp_path / "full/summary.json").exists()
    command = [sys.executable, "-m", "jaxrl", "train", *TINY, f"--workdir={tmp_path}/closed"]
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    done = subprocess.run(closed, cwd=ROOT, stderr=subprocess.PIPE, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
def test_a_user_that_the_machine_does_not_know_needs_no_home() -> None:
    # As in many containers. It may read and write everything, as this checkout may be root's alone.
    powers = "+dac_override,+dac_read_search"
    unknown = [
        "setpriv",
        "--reuid=54321",
        "--clear-groups",
        f"--inh-caps={powers}",
        f"--ambient-caps={powers}",
    ]
    if not shutil.which("setpriv") or subprocess.run([*unknown, "true"], check=False).returncode:
        pytest.skip("only root can become another user")
    kept = ("PATH", "PYTHONPATH", "JAX_PLATFORMS", "XLA_FLAGS")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    with tempfile.TemporaryDirectory() as place:  # pytest's own folders are closed to others
        os.chmod(place, 0o777)
        command = [*unknown, sys.executable, "-m", "jaxrl", "train", *TINY, f"--workdir={place}/run"]
        env["MPLCONFIGDIR"] = place  # matplotlib, which gymnax imports, says that it has no home
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
