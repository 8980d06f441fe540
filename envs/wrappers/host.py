"""Wrappers over host environments.

Wrappers of observations run on the device, where observations are decoded; wrappers that need the steps'
data keep it beside the observation, see `KeptObservations`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs import host_env
from jaxrl.envs.base import EnvSpec, JaxEnv, TimeStep, zeros
from jaxrl.envs.host_env import HostEnv, HostFactory, HostOptions, HostStep, StartedEnv
from jaxrl.envs.wrappers.agents import AgentId, CentralObservation
from jaxrl.envs.wrappers.episodes import ReportInfo
from jaxrl.envs.wrappers.host_steps import KeptObservations, StepChange
from jaxrl.envs.wrappers.observations import FrameStack
from jaxrl.envs.wrappers.previous_action import PreviousReward
from jaxrl.envs.wrappers.rewards import ShapedReward
from jaxrl.envs.wrappers.wrapper import ObservationWrapper, RewardWrapper, Wrapper

_ON_HOST = (
    AgentId,
    CentralObservation,
    FrameStack,
    ObservationWrapper,
    PreviousReward,
    ReportInfo,
    ShapedReward,
    RewardWrapper,
)


class WrappedFactory:
    """A host environment with wrappers; ValueError if one is unknown, does not fit, or needs the device.

    Args:
      factory: of the environment; `unwrapped` of this.
      wrappers: names, from the innermost to the outermost.
      wrap: makes the wrapper of that name around an environment.
    """

    def __init__(self, factory: HostFactory, wrappers: Sequence[str], wrap: Callable[[JaxEnv, str], JaxEnv]):
        self._chain: list[Wrapper] = []
        env: JaxEnv = _Described(factory.spec)
        for name in wrappers:
            env = wrap(env, name)
            if not isinstance(env, _ON_HOST):
                raise ValueError(
                    f"wrapper {name} needs a device environment, not {factory.spec.name}; on the host "
                    "agent_id, frame_stack, potential_shaping, previous_reward, report, reward_clip, "
                    "reward_scale, reward_shaping and wrappers of observations work"
                )
            if isinstance(env, ReportInfo):
                factory.require_info(env.report.name)
            if isinstance(env, CentralObservation):
                factory = cast(host_env.CentralHostFactory, factory).with_central()
            self._chain.append(env)
        self.unwrapped = factory
        self.spec = env.spec
        self._kept = KeptObservations(factory, self._chain)
        self._change = StepChange(self._kept, self._chain)
        self._check()

    def decode(self, obs: Any) -> Any:
        return self._kept.show(obs)

    def action_mask(self, obs: Any) -> Any:
        return self.unwrapped.action_mask(obs["obs"] if self._kept.num_rewards else obs)

    def require_info(self, key: str) -> None:
        self.unwrapped.require_info(key)

    def start(self, options: HostOptions) -> HostEnv:
        if self._change.shapes_rewards:
            told = (report.name for report in self.spec.reports)
            options = dataclasses.replace(options, info_keys=tuple(sorted({*options.info_keys, *told})))
        return self.around(self.unwrapped.start(options))

    def around(self, env: HostEnv) -> HostEnv:
        """The wrappers around a batch of `unwrapped` that has been started."""
        return WrappedEnv(self, self._change, env)

    def _check(self) -> None:
        """Refuses frame stacks with action masks, and shaping if JAX has no CPU."""
        platforms = jax.config.jax_platforms or ""  # type: ignore[attr-defined]
        if self._change.shapes_rewards and platforms and "cpu" not in platforms.split(","):
            raise ValueError(
                f"{self.spec.name}: on the host rewards are shaped on the CPU, which `JAX_PLATFORMS` "
                f"(={platforms}) leaves out: unset it, or set it to {platforms},cpu"
            )
        if self.spec.has_action_mask and any(isinstance(w, FrameStack) for w in self._chain):
            raise ValueError(f"wrapper frame_stack does not serve the action masks of {self.spec.name}")


class WrappedEnv(StartedEnv):
    """A batch that `WrappedFactory` started."""

    def __init__(self, factory: WrappedFactory, change: StepChange, env: HostEnv):
        self.spec = factory.spec
        self.factory = factory
        self._change = change
        self.env = env
        self.num_envs = env.num_envs
        self.num_groups = env.num_groups
        self.timeout = env.timeout
        self._last: dict[int, Any] = {}
        self._actions: dict[int, np.ndarray] = {}

    def send(self, group: int, action: np.ndarray) -> None:
        if self._change.shapes_rewards:
            self._actions[group] = np.array(action)
        self.env.send(group, action)

    def deal(self, group: int, task: np.ndarray) -> None:
        self.env.deal(group, task)

    def recv(self, group: int) -> HostStep:
        step = self.env.recv(group)
        if not self._change.looks_back:
            return self._change(step)
        step = self._change(step, self._last.get(group), self._actions.get(group))
        # The next `send` may overwrite what the environments have in place; stacks are copies.
        self._last[group] = step.obs if self._change.stacks_frames else jax.tree.map(np.array, step.obs)
        return step

    def traced(self) -> host_env.TracedSteps | None:
        # Programs keep nothing between steps in which frames or observations could wait.
        found = None if self._change.looks_back else self.env.traced()
        return None if found is None else _WrappedSteps(found, self._change)

    def interrupt(self) -> None:
        self.env.interrupt()

    def close(self) -> None:
        self.env.close()


class _WrappedSteps(host_env.TracedSteps):
    """See `TracedSteps`; steps of wrapped environments."""

    def __init__(self, steps: host_env.TracedSteps, change: StepChange):
        self.handles = steps.handles
        self._steps = steps
        self._change = change

    @property
    def is_ready(self) -> bool:
        return self._steps.is_ready

    def send(self, group: int, handle: jax.Array, action: jax.Array) -> jax.Array:
        return self._steps.send(group, handle, action)

    def recv(self, group: int, handle: jax.Array, first: jax.Array) -> tuple[jax.Array, HostStep, jax.Array]:
        handle, step, finite = self._steps.recv(group, handle, first)
        return handle, self._change(step), finite

    def stepped(self, reward: np.ndarray, finite: np.ndarray) -> None:
        self._steps.stepped(reward, finite)


class _Described(Wrapper):
    """Stands for an environment if only its spec and the shapes of its steps are read."""

    def __init__(self, spec: EnvSpec):
        self.spec = spec

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        return (), zeros(self.spec.observation_space)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        no = jnp.zeros((), bool)
        nothing = jnp.zeros((), jnp.float32)
        info = {report.name: nothing for report in self.spec.reports}
        return (), TimeStep(zeros(self.spec.observation_space), nothing, no, no, info=info)
