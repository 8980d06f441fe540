"""Greedy evaluation on a gymnax 0.0.9 environment, for the peers that have none of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

_EPISODES = 64


def greedy_return(env: Any, env_params: Any, act: Callable[..., Any], params: Any, key: Any) -> Any:
    """Mean return of the first episodes of 64 environments; `act(params, obs [B, ...])` gives actions [B]."""
    reset_key, step_key = jax.random.split(key)
    obs, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(reset_key, _EPISODES), env_params)

    def step(carry: Any, key: Any) -> tuple[Any, None]:
        obs, state, running, total = carry
        keys = jax.random.split(key, _EPISODES)
        obs, state, reward, done, _ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
            keys, state, act(params, obs), env_params
        )
        # Some environments say a reward of one number, others of shape [1].
        return (obs, state, running & ~done, total + reward.reshape(_EPISODES) * running), None

    start = (obs, state, jnp.ones(_EPISODES, bool), jnp.zeros(_EPISODES))
    keys = jax.random.split(step_key, int(env_params.max_steps_in_episode))
    (_, _, _, total), _ = jax.lax.scan(step, start, keys)
    return total.mean()
