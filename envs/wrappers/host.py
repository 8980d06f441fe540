"""Observation wrappers over host environments: they run on the device, where observations are decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from envs.base import EnvSpec, HostEnv, HostFactory, HostOptions, HostStep, JaxEnv, TracedSteps
from envs.wrappers.wrapper import ObservationWrapper, Wrapper


class WrappedFactory:
    """A host environment whose observations pass through wrappers.

    Args:
      factory: of the environment.
      wrappers: names, from the innermost to the outermost.
      wrap: makes the wrapper of that name around an environment.

    Raises:
      ValueError: a wrapper is unknown, does not fit, or changes more than observations.
    """

    def __init__(self, factory: HostFactory, wrappers: Sequence[str], wrap: Callable[[JaxEnv, str], JaxEnv]):
        self._factory = factory
        self._chain: list[ObservationWrapper] = []
        env: JaxEnv = _Described(factory.spec)
        for name in wrappers:
            env = wrap(env, name)
            if not isinstance(env, ObservationWrapper):
                raise ValueError(
                    f"wrapper {name} needs a device environment, not {factory.spec.name}; on the host only "
                    "wrappers of observations work"
                )
            self._chain.append(env)
        self.spec = env.spec

    def decode(self, obs: Any) -> Any:
        obs = self._factory.decode(obs)
        inner = self._factory.spec
        for wrapper in self._chain:
            observe: Callable[[Any], Any] = wrapper.observe
            # A wrapper sees one observation; here they come as [N, ...] and [T, N, ...].
            for _ in range(obs.ndim - len(inner.observation_space.shape)):  # type: ignore[union-attr]
                observe = jax.vmap(observe)
            obs, inner = observe(obs), wrapper.spec
        return obs

    def action_mask(self, obs: Any) -> Any:
        return self._factory.action_mask(obs)

    def start(self, options: HostOptions) -> HostEnv:
        return WrappedEnv(self.spec, self.decode, self._factory.start(options))


class WrappedEnv(HostEnv):
    """A batch that `WrappedFactory` started."""

    def __init__(self, spec: EnvSpec, decode: Callable[[Any], Any], env: HostEnv):
        self.spec, self._decode, self.env = spec, decode, env
        self.num_envs, self.num_groups, self.timeout = env.num_envs, env.num_groups, env.timeout

    def send(self, group: int, action: np.ndarray) -> None:
        self.env.send(group, action)

    def recv(self, group: int) -> HostStep:
        return self.env.recv(group)

    def decode(self, obs: Any) -> Any:
        return self._decode(obs)

    def action_mask(self, obs: Any) -> Any:
        return self.env.action_mask(obs)

    def traced(self) -> TracedSteps | None:
        return self.env.traced()

    def interrupt(self) -> None:
        self.env.interrupt()

    def close(self) -> None:
        self.env.close()


class _Described(Wrapper):
    """Stands for an environment where only its spec is looked at."""

    def __init__(self, spec: EnvSpec):
        self.spec = spec
