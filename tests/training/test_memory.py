"""A run that does not fit says in one line what is large and what would take less."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jaxrl.config import from_json, to_json
from jaxrl.config.remedies import memory_remedies
from jaxrl.training.assembly import Assembly
from jaxrl.training.memory import explain
from tests.compiled_programs import tiny_config

ROOT = Path(__file__).parents[2]

# A program that asks for 100 GB, in a process that may have 8.
_TRAIN = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
from jaxrl.commands import run
fields = {
    "env.num_envs": 2**18, "env.stagger": False, "env.wrappers": (), "num_devices": 1, "log.writers": (),
    "network.hidden_sizes": (4,), "network.core_size": 4,
    "ppo.rollout_length": 1024, "ppo.num_minibatches": 1, "ppo.gradient_accumulation": 1,
}
flags = [f"--config.{name}={x}" for name, x in fields.items()]
sys.exit(run(["jaxrl", "train", "ppo", "--env=jaxrl:ProbeValue", f"--workdir={sys.argv[1]}", *flags]))
"""


@pytest.mark.slow
def test_out_of_memory_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _TRAIN, str(tmp_path / "run")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith(("E0", "W0", "I0"))]
    assert line.startswith("error: out of memory, ")
    assert "GB could not be allocated; largest arrays on each device: f32[1024,262144,16] of 17.2 GB" in line
    for remedy in (
        "fewer environments (--config.env.num_envs=131072)",
        "shorter rollouts (--config.ppo.rollout_length=512)",
        "more minibatches (--config.ppo.num_minibatches=2)",
        "accumulation (--config.ppo.gradient_accumulation=2)",
        "bfloat16 (--config.network.compute_dtype=bfloat16)",
    ):
        assert remedy in line


@pytest.mark.parametrize(
    ("complaint", "said"),
    [
        (
            "RESOURCE_EXHAUSTED: Out of memory allocating 101771130464 bytes.",
            "out of memory, 102 GB could not",
        ),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1.50GiB.", "memory, 1.50 GiB could not"),
        ("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm.", "out of memory; largest arrays"),
    ],
)
def test_what_each_backend_says(complaint: str, said: str) -> None:
    config = tiny_config()
    message = str(explain(RuntimeError(complaint), config, Assembly.build(config).runtime))
    assert said in message
    assert "\n" not in message
    assert "f32[" in message


@pytest.mark.parametrize(
    ("fields", "absent"),
    [
        ({}, ()),
        ({"network__compute_dtype": "bfloat16"}, ("bfloat16",)),
        # A minibatch of one environment has no parts; more minibatches are of parts of the rollout, down to
        # one step of one environment. No sequence is longer than a rollout.
        ({"ppo__num_minibatches": 8}, ("accumulation",)),
        (
            {"ppo__num_minibatches": 128},
            ("more minibatches", "accumulation", "fewer environments", "shorter rollouts"),
        ),
        ({"ppo__sequence_length": 16}, ("shorter rollouts",)),
    ],
)
def test_every_remedy_is_a_valid_configuration(fields: dict[str, Any], absent: tuple[str, ...]) -> None:
    config = tiny_config(**fields)
    remedies = memory_remedies(config).split("), ")
    names = ["fewer environments", "shorter rollouts", "more minibatches", "accumulation", "bfloat16"]
    assert [remedy.partition(" (")[0] for remedy in remedies] == [
        name for name in names if name not in absent
    ]
    for remedy in remedies:
        name, _, value = remedy.rstrip(")").partition("--config.")[2].partition("=")
        section, _, field = name.partition(".")
        data = to_json(config)
        data[section][field] = int(value) if value.isdigit() else value
        assert from_json(data) != config
