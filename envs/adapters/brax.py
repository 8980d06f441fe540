"""Brax (Freeman et al. 2021), rigid bodies on the device, as `JaxEnv`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax

from jaxrl.envs.adapters import physics
from jaxrl.envs.adapters.physics import PhysicsState
from jaxrl.envs.adapters.suite import check_arguments, load, suite_rules
from jaxrl.envs.base import Box, EnvSpec, JaxEnv, TimeStep
from jaxrl.envs.names import check_positive, format_call

_EPISODE_LENGTH = 1000  # of the suite's own training wrappers


def names() -> Sequence[str]:
    """The environments that brax has registered."""
    return tuple(sorted(load("brax.envs", "brax")._envs))


def make(name: str, episode_length: int = _EPISODE_LENGTH, **kwargs: Any) -> Brax:
    """Makes one of `names()`.

    Args:
      name: of the environment.
      episode_length: steps after which an episode is cut off.
      kwargs: of the environment's class, such as `backend="spring"`.
    """
    return Brax(name, episode_length, **kwargs)


class Brax(JaxEnv):
    """An environment of Brax without its wrappers: these cut episodes off and restart them.

    A termination is what the suite calls done. What it calls metrics is reported: the sum of each part of the
    reward, the mean of everything else.
    """

    def __init__(self, name: str, episode_length: int, **kwargs: Any):
        label = f"brax:{name}"
        check_arguments(label, kwargs)
        self._limit = check_positive(f"{label}: episode_length", episode_length)
        package = load("brax.envs", "brax")
        try:
            with suite_rules():
                self._env = package.get_environment(name, **kwargs)
                state, obs = jax.eval_shape(self.reset, jax.random.key(0))
                size = int(self._env.action_size)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{label} refuses {kwargs}: {' '.join(str(error).split())}") from error
        given = {} if episode_length == _EPISODE_LENGTH else {"episode_length": episode_length}
        self.spec = EnvSpec(
            name=format_call(label, given | kwargs),
            observation_space=Box.of(-math.inf, math.inf, obs.shape),
            action_space=Box.of(-1.0, 1.0, (size,)),
            max_episode_steps=episode_length,
            reports=physics.reports(state.env.metrics),
        )

    def reset(self, key: jax.Array) -> tuple[PhysicsState, Any]:
        return physics.reset(self._env, key)

    def step(self, key: jax.Array, state: PhysicsState, action: jax.Array) -> tuple[PhysicsState, TimeStep]:
        return physics.step(self._env, self._limit, state, action)
