"""The rules for every environment of this project, checked against a loop that restarts by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import envs
from jaxrl.envs.base import Dict
from jaxrl.envs.behaviour import random_action
from jaxrl.envs.checks import check_types
from jaxrl.envs.env_check import check_env
from jaxrl.envs.spaces import bounds
from jaxrl.envs.vector import VectorEnv
from jaxrl.parallel.sharding import SHARDED, Topology

_B = 4
_RESTART = 0x52455345  # what `VectorEnv` folds into the key of a step that starts an episode


def check(name, length, seed=1):
    """Plays `length` random steps of a batch under jit, vmap and shard_map; some episodes must end.

    Returns:
      The records of the steps, [B, T, ...] by name.
    """
    env = envs.make(name)
    check_env(env)
    assert not check_types(name, env)
    assert envs.make(env.spec.name).spec == env.spec
    keys_B = jax.random.split(jax.random.key(seed), _B)
    program = Topology.of(1).shard(lambda keys: _play(env, length, keys), (SHARDED,), SHARDED)
    found = jax.tree.map(np.asarray, program(keys_B))
    jax.tree.map(np.testing.assert_array_equal, found, jax.tree.map(np.asarray, program(keys_B)))
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    for b in range(2):
        state, obs = reset(keys_B[b])
        for t in range(length):
            row = jax.tree.map(lambda x, b=b, t=t: x[b, t], found)
            _same(row["seen"], obs)
            key = jax.random.fold_in(keys_B[b], t)
            state, timestep = step(key, state, row["action"])
            obs = timestep.obs
            for part in ("reward", "terminated", "truncated", "info"):
                _same(row[part], getattr(timestep, part))
            _same(row["final_obs"], obs)
            if timestep.done:
                state, obs = reset(jax.random.fold_in(key, _RESTART))
    assert (found["terminated"] | found["truncated"]).any()
    _lies_in(env.spec.observation_space, found["seen"])
    return found


def _play(env, length, keys_B):
    batch = VectorEnv(env)

    def step(loop, t):
        state, obs = loop
        keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys_B, t)
        action = jax.vmap(lambda key, s: random_action(env, jax.random.fold_in(key, 7), s))(keys, state.env)
        state, found = batch.step(keys, state, action)
        parts = ("reward", "terminated", "truncated", "final_obs", "info")
        record = {"seen": obs, "action": action} | {part: getattr(found, part) for part in parts}
        return (state, found.obs), record

    records = jax.lax.scan(step, batch.reset(keys_B), jnp.arange(length))[1]
    return jax.tree.map(lambda x: x.swapaxes(0, 1), records)


def _same(left, right):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), left, right)


def _lies_in(space, seen):
    if isinstance(space, Dict):
        for name, part in space.spaces:
            _lies_in(part, seen[name])
        return
    values = seen.reshape(-1, *space.shape)
    assert values.dtype == space.dtype
    low, high = bounds(space)
    assert (values >= low - 1e-6).all()
    assert (values <= high + 1e-6).all()
