"""Policies that react to what they see and remember, without training; and run folders that hold them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import algorithms
from jaxrl.algorithms.agent import quantities
from jaxrl.config import to_json
from jaxrl.envs import registry
from jaxrl.envs.base import Dict, Discrete, MultiDiscrete, Space, zeros
from jaxrl.envs.numbering import own_numbers
from jaxrl.evaluation.trained_policy import TrainedPolicy
from jaxrl.networks import normalizer
from jaxrl.parallel.sharding import Topology
from jaxrl.runs.checkpoint import Checkpointer
from jaxrl.runs.folder import RunFolder
from jaxrl.types import Acting, PyTree
from tests.compiled_programs import tiny_config


def policy_of(**fields: Any) -> TrainedPolicy:
    """Random parameters and moments; `env__name="..."` sets `env.name`."""
    config = tiny_config(**fields)
    spec = registry.spec_of(config.env.name, config.env.wrappers)
    agent = algorithms.build_agent(config, spec)
    rng = np.random.default_rng(0)

    def weights(x: Any) -> jax.Array:
        scale = 1.5 / np.sqrt(np.prod(x.shape[:-1])) if x.ndim > 1 else 0.1
        return jnp.asarray(rng.normal(size=x.shape) * scale, x.dtype)

    params = jax.tree.map(weights, jax.eval_shape(agent.init_params, jax.random.key(0)))
    stats = None
    if config.normalize.observations:
        space = spec.observation_space
        stats = moved(normalizer.init(quantities(space, zeros(space))))
    return TrainedPolicy("runs/none", config, spec, agent, Acting(params, stats), 7, Topology.of(1))


def save_run(folder: Path, **fields: Any) -> None:
    """Writes config.json and the checkpoint of step 7."""
    found = policy_of(**fields)
    checkpointer = Checkpointer(str(folder / "checkpoints"), keep=1)
    checkpointer.save(7, {"learner": {"policy": found.state}}, {"config": to_json(found.config)})
    checkpointer.close()
    RunFolder(str(folder)).write_config(found.config)


def moved(stats: normalizer.RunningStats) -> normalizer.RunningStats:
    """Means and deviations of which each element is different, so that a wrong one shows."""

    def ramp(x: jax.Array, low: float) -> jax.Array:
        return low + jnp.arange(x.size, dtype=jnp.float32).reshape(x.shape) / 16

    return stats.replace(
        count=jnp.float32(100),
        mean=tuple(ramp(x, 0.1) for x in stats.mean),
        m2=tuple(100 * ramp(x, 0.3) ** 2 for x in stats.m2),
    )


def observations(space: Space, batch: int, rng: np.random.Generator) -> PyTree:
    """Anything that the environment may give; floats beyond the bounds of the normaliser too."""
    if isinstance(space, Dict):
        return {key: observations(part, batch, rng) for key, part in space.spaces}
    if isinstance(space, Discrete | MultiDiscrete):
        high = space.n if isinstance(space, Discrete) else np.array(space.nvec)
        return own_numbers(space, rng.integers(0, high, (batch, *space.shape)).astype(space.dtype))
    if np.dtype(space.dtype) == np.uint8:
        return rng.integers(0, 256, (batch, *space.shape)).astype(np.uint8)
    return (3 * rng.normal(size=(batch, *space.shape))).astype(space.dtype)
