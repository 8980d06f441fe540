"""A run that does not fit says in one line what is large and what would take less."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jaxrl.config import ConfigError, from_json, resolve, to_json
from jaxrl.config.construction import memory_remedies
from jaxrl.programs.memory import explain, replay_bytes
from jaxrl.programs.runtime import Runtime
from jaxrl.training.assembly import Assembly
from tests.algorithms.tiny import config_fields
from tests.algorithms.tiny import tiny_config as tiny_learner
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


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    return Assembly.build(tiny_config()).runtime


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
def test_what_each_backend_says(runtime: Runtime, complaint: str, said: str) -> None:
    message = str(explain(RuntimeError(complaint), tiny_config(), runtime))
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


ATARI = "envpool:Pong-v5(stack_num=4, gray_scale=True)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wrappers", "each"),
    [
        # Beside the observation: reset, action, reward, terminated, valid, and the priority.
        (ATARI, (), 84 * 84 + 1 + (1 + 4 + 4 + 1 + 1) + 4),
        ("gymnax:CartPole-v1", ("frame_stack(frames=4)",), 4 * 4 + 1 + (1 + 4 + 4 + 1 + 1) + 4),
        ("gymnax:CartPole-v1", (), 4 * 4 + (1 + 4 + 4 + 1 + 1) + 4),
    ],
)
def test_bytes_of_a_replay_memory(name: str, wrappers: tuple[str, ...], each: int) -> None:
    config = tiny_learner("dqn", env__name=name, env__wrappers=wrappers, learner__capacity=512)
    counts = 3 * 4  # cursor, count, draws
    blocks = 512 // 16 * 2 * 4 + 8 * 4  # their sums and maxima, and a count of each environment
    assert replay_bytes(Assembly.build(config).runtime) == 512 * each + blocks + counts


def test_a_replay_memory_that_no_device_holds_is_one_line() -> None:
    config = tiny_learner("dqn", env__name="gymnax:CartPole-v1", learner__capacity=2**31 - 1, env__num_envs=8)
    with pytest.raises(ConfigError, match=r"`dqn.capacity` \(=2147483647\) needs 67.6 GB .* 32 B for a step"):
        Assembly.build(config)


def test_a_ring_that_holds_no_whole_stack_is_refused() -> None:
    config = config_fields("dqn", learner__batch_size=8, learner__n_step=14, learner__capacity=128)
    config.env.update(name="gymnax:CartPole-v1", wrappers=("frame_stack(frames=3)",))
    with pytest.raises(ConfigError, match=r"the last `dqn.n_step` .* and the first 2, whose frames"):
        Assembly.build(resolve(config, 1))
