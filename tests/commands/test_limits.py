"""Flags that would never end, and files and buckets that do not answer: one line, within seconds."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from jaxrl.runs.storage import bucket
from tests.commands.refusals import refused
from tests.runs.storage.gcs_server import GcsServer

Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "--format=numpy", "--steps=99999999999999999999"],
        ["export", "--format=numpy", "--steps=2000000000"],
        ["export", "--format=onnx", "--batch=99999999999999999999"],
        ["inference-benchmark", "--seconds=inf"],
        ["inference-benchmark", "--seconds=nan"],
        ["inference-benchmark", "--seconds=1e9"],
        ["inference-benchmark", "--batch=99999999999999999999"],
        ["inference-benchmark", "--batch=²"],
        ["evaluate", "--episodes=99999999999999999999"],
        ["evaluate", "--seed=99999999999999999999"],
        ["verify-checkpoint", "--step=99999999999999999999"],
    ],
)
def test_numbers_without_end_are_refused(arguments: list[str], tmp_path: Path, capfd: Output) -> None:
    flag = arguments[-1].partition("=")[0]
    assert flag in refused(capfd, *arguments, f"--workdir={tmp_path}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "ppo", "--num_processes=99999999999999999999"],
        ["train", "ppo", "--process_id=99999999999999999999"],
        ["train", "ppo", "--watchdog=99999999999999999999"],
        ["benchmark", "ppo", "--seconds=inf"],
        ["compare", ".", "--resamples=99999999999999999999"],
        ["compare", ".", "--threshold=nan"],
        ["tournament", "random", "greedy", "--games=99999999999999999999"],
        ["watch", ".", "--interval=inf"],
        ["watch", ".", "--interval=nan"],
    ],
)
def test_so_are_those_of_commands_without_a_run(arguments: list[str], capfd: Output) -> None:
    assert arguments[-1].partition("=")[0] in refused(capfd, *arguments)


@pytest.mark.parametrize("value", ["9" * 20, "9" * 5_000, "²"])
def test_so_are_those_of_the_environment(value: str, monkeypatch: pytest.MonkeyPatch, capfd: Output) -> None:
    monkeypatch.setenv("JAX_NUM_PROCESSES", value)
    assert "`JAX_NUM_PROCESSES`" in refused(capfd, "train", "ppo")


@pytest.mark.parametrize(
    ("command", "name"),
    [("compare", "gs://runs/mine"), pytest.param("watch", "gs://runs/*/seed-?", marks=pytest.mark.slow)],
)
def test_a_bucket_that_does_not_answer_is_one_line(
    command: str, name: str, gcs: GcsServer, monkeypatch: pytest.MonkeyPatch, capfd: Output
) -> None:
    gcs.rule = lambda request: 503  # the client would try again for minutes
    monkeypatch.setattr(bucket, "TIMEOUT_SECONDS", 0.6)  # 1 in messages
    started = time.monotonic()
    error = refused(capfd, command, name)
    assert time.monotonic() - started < 20
    assert re.search(rf"\(='{re.escape(name)}'\) cannot be reached in 1 s", error)


@pytest.mark.parametrize("command", ["compare", "watch"])
@pytest.mark.parametrize("name", ["s3://runs/mine", "gs://", "gs:///x", "ftp://runs/mine"])
def test_what_is_no_bucket_is_one_line(command: str, name: str, capfd: Output) -> None:
    assert "must be a local folder or gs://bucket/folder" in refused(capfd, command, name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("def get_config():\n    return half(3)\ndef half(x):\n    return x / 0", "(line 4: return x / 0)"),
        ("raise SystemExit(0)", "raised SystemExit: 0 (line 1: raise SystemExit(0))"),
        ("import sys\nsys.exit()", "(line 2: sys.exit())"),
        ("def get_config():\n    return get_config()", "raised RecursionError"),
        ("import jaxrl\ndef get_config():\n    return jaxrl.default_config().pppo", "(line 3: return"),
        ("def get_config(:", "raised SyntaxError"),
        ("x = '\\ud800'\nraise ValueError(x)", "raised ValueError"),
        ("class E(Exception):\n    def __str__(self):\n        return 1 / 0\nraise E", "raised E"),
    ],
)  # fmt: skip
def test_a_config_file_that_raises_shows_its_own_line(
    text: str, shown: str, tmp_path: Path, capfd: Output
) -> None:
    (tmp_path / "mine.py").write_text(text)
    for command in ("train", "benchmark"):
        error = refused(capfd, command, str(tmp_path / "mine.py"))
        assert shown in error
        assert "Traceback" not in error
