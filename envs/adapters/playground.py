"""MuJoCo Playground (Zakka et al. 2025), MuJoCo's physics on the device, as `JaxEnv`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax

from jaxrl.envs.adapters import physics
from jaxrl.envs.adapters.physics import PhysicsState
from jaxrl.envs.adapters.suite import check_arguments, load, suite_rules
from jaxrl.envs.base import Box, Dict, EnvSpec, JaxEnv, Space, TimeStep
from jaxrl.envs.names import check_positive, format_call, unknown

_SUITE = "playground"


def names() -> Sequence[str]:
    """The DeepMind Control Suite, and robots where the suite has cloned their models."""
    registry = load("mujoco_playground", _SUITE).registry
    has_models = load("mujoco_playground._src.mjx_env", _SUITE).MENAGERIE_PATH.exists()
    return tuple(sorted(registry.ALL_ENVS if has_models else registry.dm_control_suite.ALL_ENVS))


def make(name: str, episode_length: int | None = None, impl: str = "jax", **kwargs: Any) -> Playground:
    """Makes one of `names()`.

    Args:
      name: of the environment.
      episode_length: steps after which an episode is cut off; that of the environment's own configuration if
        None.
      impl: of MuJoCo: "jax", compiled with the rest of a program, or "warp", the suite's own default. Both
        run on every device; for a CPU Warp first compiles its kernels, which takes minutes.
      kwargs: fields of this configuration, such as `ctrl_dt=0.02`.
    """
    return Playground(name, episode_length, impl, **kwargs)


class Playground(JaxEnv):
    """An environment of MuJoCo Playground without its wrappers, which cut episodes off and restart them.

    A termination is what the suite calls done. What it calls metrics is reported: the sum of each part of the
    reward, the mean of everything else.
    """

    def __init__(self, name: str, episode_length: int | None, impl: str, **kwargs: Any):
        label = f"{_SUITE}:{name}"
        check_arguments(label, kwargs)
        registry = load("mujoco_playground", _SUITE).registry
        with suite_rules():
            config = registry.get_default_config(name)
        for key in kwargs.keys() - config.keys():
            raise unknown(f"argument of {label}", key, config.keys())
        given: dict[str, Any] = {} if episode_length is None else {"episode_length": episode_length}
        given |= ({} if impl == "jax" else {"impl": impl}) | kwargs
        try:
            with suite_rules():
                self._env = registry.load(name, config_overrides=kwargs | {"impl": impl})
                state, obs = jax.eval_shape(self.reset, jax.random.key(0))
                size = int(self._env.action_size)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{label} refuses {given}: {' '.join(str(error).split())}") from error
        limit = int(config.episode_length) if episode_length is None else episode_length
        self._limit = check_positive(f"{label}: episode_length", limit)
        self.spec = EnvSpec(
            name=format_call(label, given),
            observation_space=_space(obs),
            action_space=Box.of(-1.0, 1.0, (size,)),
            max_episode_steps=self._limit,
            reports=physics.reports(state.env.metrics),
        )

    def reset(self, key: jax.Array) -> tuple[PhysicsState, Any]:
        return physics.reset(self._env, key)

    def step(self, key: jax.Array, state: PhysicsState, action: jax.Array) -> tuple[PhysicsState, TimeStep]:
        return physics.step(self._env, self._limit, state, action)


def _space(obs: Any) -> Space:
    if isinstance(obs, dict):
        return Dict(tuple((key, _space(part)) for key, part in sorted(obs.items())))
    return Box.of(-math.inf, math.inf, obs.shape)
