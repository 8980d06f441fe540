"""jaxrl's side of the works of training in `replay_peers.py`; `replay_runner.py` has the peers'."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxrl.config import default_config


def _config(steps: int, algorithm: str, env: str, num_envs: int, **network: Any) -> Any:
    config = default_config()
    config.algorithm = algorithm
    config.env.update(name=env, num_envs=num_envs)
    config.network.update(activation="relu", **network)
    config.normalize.observations = False
    config.stop.steps = steps
    return config


def dqn(steps: int) -> Any:
    """The configuration of the work that the peer's runner describes."""
    config = _config(steps, "dqn", "gymnax:CartPole-v1", 8, core="none", hidden_sizes=(64, 64))
    config.dqn.update(rollout_length=1, updates_per_rollout=1, batch_size=128, capacity=10_000, n_step=1)
    config.dqn.update(learning_starts=1_000, target_period=50)
    return config


def sac(steps: int) -> Any:
    """Likewise. SBX steps Gymnasium's Pendulum; gymnax's, in the program, takes next to no time."""
    config = _config(steps, "sac", "gymnax:Pendulum-v1", 4, core="none", hidden_sizes=(256, 256))
    config.sac.update(rollout_length=4, updates_per_rollout=16, batch_size=256, learning_starts=1_000)
    return config


def r2d2(steps: int) -> Any:
    """Likewise. memorax samples sequences from any step of the memory, jaxrl every twentieth."""
    config = _config(steps, "r2d2", "gymnax:CartPole-v1", 16, core="lstm", hidden_sizes=(128,), core_size=128)
    config.r2d2.update(rollout_length=20, updates_per_rollout=5, batch_size=32, capacity=40_000)
    config.r2d2.update(learning_starts=4_000, burn_in=20, trace_length=40, overlap=20, n_step=5)
    config.r2d2.update(dueling=False, exploration="linear", value_rescaling=False, target_period=25)
    return config


def minatar(steps: int) -> Any:
    """Likewise: PureJaxRL's DQN is neither double nor dueling, and samples uniformly."""
    config = _config(
        steps, "dqn", "gymnax:Breakout-MinAtar", 4, encoder="minatar", core="none", hidden_sizes=(128,)
    )
    config.dqn.update(rollout_length=1, updates_per_rollout=1, batch_size=32, capacity=100_000, n_step=1)
    config.dqn.update(learning_starts=1_000, target_period=1_000, double=False)
    return config


def dqn_minatar(steps: int) -> Any:
    """`jaxrl train dqn_minatar`, which learns after 1,000 steps: 32 by priority, every four steps."""
    root = Path(__file__).resolve().parents[2]
    config = runpy.run_path(str(root / "configs/dqn_minatar.py"))["get_config"]()
    config.dqn.learning_starts = 1_000
    config.stop.steps = steps
    return config


# By work: the configuration for so many steps, and the peer, if there is one.
TRAINED: dict[str, tuple[Callable[[int], Any], str]] = {
    "dqn": (dqn, "rejax"),
    "minatar": (minatar, "PureJaxRL"),
    "dqn_minatar": (dqn_minatar, ""),
    "sac": (sac, "SBX"),
    "r2d2": (r2d2, "memorax"),
}
