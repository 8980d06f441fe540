"""NAVIX (Pignatelli et al. 2024), MiniGrid in JAX, as `JaxEnv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.adapters.suite import EXPENSIVE_RESETS, load, raw_key, refusals, suite_rules
from jaxrl.envs.base import Box, Discrete, EnvSpec, InfoMetric, JaxEnv, TimeStep
from jaxrl.envs.names import changed_call, check_numbers, check_positive, unknown
from jaxrl.envs.trees import TimedState, strong_types

# The lowest and the highest number of each kind of observation: the suite's own bounds leave out the player,
# lava and walls. Networks scale bytes by the bound of their space.
_BOUNDS = {"categorical": (-1, 10), "rgb": (0, 255), "symbolic": (0, 11)}
_OBSERVATIONS = tuple(f"{kind}{view}" for kind in _BOUNDS for view in ("", "_first_person"))


def names() -> Sequence[str]:
    return tuple(sorted(load("navix", "navix").registry()))


class Navix(JaxEnv):
    """An environment of NAVIX, stepped below its automatic reset.

    `info["success"]` is whether an episode terminated with a reward.

    Args:
      name: one of `names()`.
      observation: which of `navix.observations`: "symbolic" shows the whole grid, "symbolic_first_person"
        what the agent sees.
      max_steps: of an episode; None: the suite's own limit.
      kwargs: passed on to `navix.make`.
    """

    def __init__(self, name: str, observation: str = "symbolic", max_steps: int | None = None, **kwargs: Any):
        label = f"navix:{name}"
        check_numbers(label, kwargs)
        limit = {} if max_steps is None else {"max_steps": check_positive(f"{label}: max_steps", max_steps)}
        if observation not in _OBSERVATIONS:
            raise unknown(f"observation of {label}", observation, _OBSERVATIONS)
        navix = load("navix", "navix")
        function = getattr(navix.observations, observation)
        with refusals(label, kwargs, TypeError):
            self._env = navix.make(name, observation_fn=function, **limit, **kwargs)
        self._timestep = load("navix.environments.environment", "navix").Timestep
        # Sprites of every tile, the same in each environment: only pictures are made of them.
        self._keeps_sprites = observation.startswith("rgb")
        low, self._highest = _BOUNDS[observation.partition("_")[0]]
        with suite_rules():
            _, obs = jax.eval_shape(self.reset, jax.random.key(0))
        self.spec = EnvSpec(
            name=changed_call(label, Navix, locals()),
            observation_space=Box.of(low, self._highest, obs.shape, np.dtype(obs.dtype).type),
            action_space=Discrete(len(self._env.action_set)),
            max_episode_steps=int(self._env.max_steps),
            reports=(InfoMetric("success", "max"),),
            reset_ratio=EXPENSIVE_RESETS,
        )

    def reset(self, key: jax.Array) -> tuple[TimedState, Any]:
        with suite_rules():
            timestep = self._env.reset(raw_key(key))
        state, obs = strong_types((self._drop_cache(timestep.state), self._within(timestep.observation)))
        return TimedState(state, jnp.zeros((), jnp.int32)), obs

    def step(self, key: jax.Array, state: TimedState, action: jax.Array) -> tuple[TimedState, TimeStep]:
        before = self._timestep(
            t=state.time,
            observation=jnp.zeros(()),
            action=action,
            reward=jnp.zeros(()),
            step_type=jnp.zeros((), jnp.int32),
            state=state.env,
        )
        with suite_rules():
            after = self._env._step(before, action)
            terminated = after.is_termination()
            truncated = after.is_truncation()
        env_state, obs, reward = strong_types(
            (self._drop_cache(after.state), self._within(after.observation), jnp.float32(after.reward))
        )
        timestep = TimeStep(obs, reward, terminated, truncated, info={"success": terminated & (reward > 0)})
        return TimedState(env_state, state.time + 1), timestep

    def _within(self, obs: jax.Array) -> jax.Array:
        """Within the bounds: in KeyCorridor of navix 0.7.4 a key is -2, which is 254 in a byte."""
        return jnp.minimum(obs, self._highest)

    def _drop_cache(self, state: Any) -> Any:
        return state if self._keeps_sprites else state.replace(cache=None)


make = Navix
