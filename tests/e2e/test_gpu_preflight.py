"""`jaxrl preflight` for GPUs that are not there; docs/gpu.md says how to run these tests."""

from __future__ import annotations

import re

import pytest

from jaxrl.parallel import gpus
from tests.e2e.test_preflight import PPO, TINY, preflight, row

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not gpus.is_installed(),
        reason="jax-cuda12-plugin, which compiles for NVIDIA GPUs, is not installed: docs/gpu.md",
    ),
]


def test_one_gpu() -> None:
    done = preflight(*TINY, "--config.ppo.rollout_length=16", "--topology=h200")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Compiles, and does not run: nothing below was measured.")
    assert row(done.stdout, "devices").startswith("1 x NVIDIA H200; jax")
    assert "of 105.30 GiB" in row(done.stdout, "fits")
    assert re.match(r"[\d,]+ per iteration: .*rollout \d", row(done.stdout, "kernels"))
    assert re.search(r"\n +[\d.]+ per rollout step\n", done.stdout)
    # Rollouts of 16 steps, 8 in each turn; 4 epochs of 2 minibatches.
    assert re.search(r"\n +2 x \d+ in a loop of rollout", done.stdout)
    assert re.search(r"\n +8 x \d+ in a loop of update", done.stdout)
    assert "a model, not a measurement" in row(done.stdout, "estimate")
    for part in ("launches", "memory", "arithmetic"):
        assert re.search(rf"\n  {part} +[\d.e+-]+ ms: ", done.stdout), done.stdout
    assert "largest arrays" in done.stdout
    assert done.stderr == ""


def test_several_gpus() -> None:
    done = preflight(*TINY, "--topology=h100:4", "--config.env.num_envs=12")
    assert done.returncode == 0, done.stderr
    assert "must be a multiple of 8. Examined with --config.env.num_envs=16" in done.stdout
    assert row(done.stdout, "devices").startswith("4 x NVIDIA H100")
    exchanges = re.match(r"(\d+) all-reduce per iteration", row(done.stdout, "collectives"))
    assert exchanges is not None
    # 4 epochs x 2 minibatches, and sums over all devices before and after them.
    assert 8 < int(exchanges[1]) <= 16


@pytest.mark.parametrize("name", [name for name in gpus.GPUS if name not in ("h100", "h200")])
def test_every_gpu(name: str) -> None:
    done = preflight(*TINY, f"--topology={name}")
    assert done.returncode == 0, done.stderr
    assert gpus.GPUS[name].description in row(done.stdout, "devices")


def test_what_does_not_fit() -> None:
    done = preflight(*TINY, "--topology=l4", "--config.env.num_envs=4194304")
    assert done.returncode == 1, done.stdout + done.stderr
    assert row(done.stdout, "fits").startswith("NO")
    assert "16.87 GiB on each device" in row(done.stdout, "fits")
    assert "\ntakes less    fewer environments" in done.stdout
    assert done.stderr == ""  # XLA's own log of such a search is not for users


def test_the_largest_batch() -> None:
    done = preflight(PPO, *TINY[1:], "--topology=l4", "--config.env.num_envs=2097152", "--find-batch")
    assert done.returncode == 0, done.stderr
    assert re.search(r"\nlargest +--config\.env\.num_envs=\d+ fits, [\d,]+ do not", done.stdout), done.stdout
