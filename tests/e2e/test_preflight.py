"""`jaxrl preflight` in processes of its own: TPU slices, this machine, what does not fit."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.refusals import refused

ROOT = Path(__file__).parents[2]
PPO = "--config=configs/ppo.py"
TINY = (
    PPO,
    "--config.ppo.rollout_length=8",
    "--config.ppo.num_minibatches=2",
    "--config.evaluate.episodes=4",
    "--config.log.layers=false",
)
needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="libtpu, which compiles for TPUs, is not installed: pip install -e '.[tpu]', or run .ci/run",
)


def preflight(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jaxrl", "preflight", *arguments]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)


def row(output: str, name: str) -> str:
    return next(line for line in output.splitlines() if line.startswith(name)).removeprefix(name).strip()


@pytest.mark.slow
@needs_libtpu
@pytest.mark.parametrize(
    ("topology", "kind", "limit"),
    [
        ("v5e:2x2", "4 x TPU v5 lite", "15.75 GiB"),
        pytest.param("v4:2x2x1", "4 x TPU v4", "30.75 GiB", marks=pytest.mark.long),
    ],
)
def test_a_slice(topology: str, kind: str, limit: str) -> None:
    done = preflight(*TINY, f"--topology={topology}", "--config.env.num_envs=12")
    assert done.returncode == 0, done.stderr
    assert "must be a multiple of 8. Examined with --config.env.num_envs=16" in done.stdout
    assert done.stdout.startswith("Compiles, and does not run")
    assert row(done.stdout, "devices").startswith(kind)
    assert limit in row(done.stdout, "fits")
    # 4 epochs x 2 minibatches, and sums over all devices before and after them.
    exchanges = re.match(r"(\d+) all-reduce per iteration", row(done.stdout, "collectives"))
    assert exchanges is not None
    assert 8 < int(exchanges[1]) <= 14
    assert "by the compiler's own estimate" in done.stdout
    # Neither libtpu's complaints about a machine without TPU, nor warnings.
    assert done.stderr == ""


# What it computes: tests/networks/kernels/test_lstm_kernel.py; a program for a slice is above.
@needs_libtpu
@pytest.mark.long
def test_the_lstm_kernel() -> None:
    done = preflight(*TINY, "--topology=v5e:2x2", "--config.network.recurrence=pallas")
    assert done.returncode == 0, done.stderr
    # 4 epochs x 2 minibatches, forward and backward; the rollout's single steps take none.
    assert "by the compiler's own estimate, without 16 calls of kernels" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topology=v5e:3x3"], "`--topology` (='v5e:3x3') must have one of the shapes 1x1, 2x2"),
        (["--topology=4x8"], "`--topology` (='4x8') must be GENERATION:SHAPE"),
        (["--topologie=v5e:4x8"], "unknown flag `--topologie`"),
    ],
)
def test_bad_input(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, "preflight", "ppo", *arguments)
