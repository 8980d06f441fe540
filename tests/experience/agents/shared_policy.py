"""Small runs of several agents that tests share."""

from __future__ import annotations

from typing import Any

import jax
from ml_collections import ConfigDict

import jaxrl
from jaxrl import algorithms
from jaxrl.config import resolve
from jaxrl.programs.device_runtime import environment
from jaxrl.programs.iteration import Iteration
from jaxrl.types import Axis


def config(algorithm: str = "ppo", **fields: Any) -> ConfigDict:
    found = jaxrl.default_config()
    found.update(algorithm=algorithm, num_devices=1)
    found.env.update(name="jaxrl:ProbeAgents", num_envs=4)
    found.network.update(encoder="mlp", core="lstm", hidden_sizes=(8,), core_size=8)
    found[algorithm].update(rollout_length=12, num_minibatches=2)
    found.stop.steps = 48 * 10
    found.evaluate.update(every_steps=0, episodes=2)
    found.log.update(every_steps=1_000_000, layers=False)
    found.update_from_flattened_dict(fields)
    return found


def iteration(algorithm: str = "ppo", **fields: Any) -> Iteration:
    resolved = resolve(config(algorithm, **fields), 1)
    env, spec = environment(resolved)
    return Iteration.build(resolved, env, algorithms.build_agent(resolved, spec), Axis())


def first_state(program: Iteration, seed: int = 0) -> Any:
    hyperparams = program.learning.algorithm.hyperparameters(program.learning.config)
    return jax.jit(program.init)(jax.random.key(seed), hyperparams)
