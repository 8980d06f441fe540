"""Wrappers over host environments.

Those of observations run on the device, where observations are decoded; those that need what happened at a
step keep it beside the observation: `{"obs": ..., "reward": float32[N]}`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.base import (
    EnvSpec,
    HostEnv,
    HostFactory,
    HostOptions,
    HostStep,
    JaxEnv,
    TimeStep,
    TracedSteps,
    zeros,
)
from envs.wrappers.frame_stack import FrameStack
from envs.wrappers.previous_reward import PreviousReward, with_number
from envs.wrappers.report import ReportInfo
from envs.wrappers.reward_shaping import RewardShaping
from envs.wrappers.wrapper import ObservationWrapper, RewardWrapper, Wrapper

_ON_HOST = (FrameStack, ObservationWrapper, PreviousReward, ReportInfo, RewardShaping, RewardWrapper)


class WrappedFactory:
    """A host environment with wrappers.

    Args:
      factory: of the environment.
      wrappers: names, from the innermost to the outermost.
      wrap: makes the wrapper of that name around an environment.

    Raises:
      ValueError: a wrapper is unknown, does not fit, or needs a device environment.
    """

    def __init__(self, factory: HostFactory, wrappers: Sequence[str], wrap: Callable[[JaxEnv, str], JaxEnv]):
        self._factory = factory
        self._chain: list[Wrapper] = []
        env: JaxEnv = _Described(factory.spec)
        for name in wrappers:
            env = wrap(env, name)
            if not isinstance(env, _ON_HOST):
                raise ValueError(
                    f"wrapper {name} needs a device environment, not {factory.spec.name}; on the host "
                    "frame_stack, previous_reward, report, reward_clip, reward_scale, reward_shaping and "
                    "wrappers of observations work"
                )
            if isinstance(env, ReportInfo):
                factory.require_info(env.report.name)
            self._chain.append(env)
        self.spec = env.spec
        shapings = [
            self._shaping(i) for i, wrapper in enumerate(self._chain) if isinstance(wrapper, RewardShaping)
        ]
        self._change = _StepChange(self._chain, shapings)
        self._check()

    def decode(self, obs: Any) -> Any:
        reward = obs["reward"] if self._change.keeps_reward else None
        return self._observed(obs["obs"] if self._change.keeps_reward else obs, reward, self._chain)

    def _observed(self, obs: Any, reward: Any, chain: Sequence[Wrapper]) -> Any:
        """Observations as the innermost wrappers `chain` show them."""
        obs = self._factory.decode(obs)
        inner = self._factory.spec
        for wrapper in chain:
            if isinstance(wrapper, ObservationWrapper):
                observe: Callable[[Any], Any] = wrapper.observe
                # A wrapper sees one observation; here they come as [N, ...] and [T, N, ...].
                for _ in range(obs.ndim - len(inner.observation_space.shape)):  # type: ignore[union-attr]
                    observe = jax.vmap(observe)
                obs = observe(obs)
            elif isinstance(wrapper, FrameStack):
                obs = _joined(obs, len(inner.observation_space.shape))  # type: ignore[union-attr]
            elif isinstance(wrapper, PreviousReward):
                assert reward is not None
                obs = with_number(obs, reward)
            inner = wrapper.spec
        return obs

    def action_mask(self, obs: Any) -> Any:
        return self._factory.action_mask(obs["obs"] if self._change.keeps_reward else obs)

    def require_info(self, key: str) -> None:
        self._factory.require_info(key)

    def start(self, options: HostOptions) -> HostEnv:
        if self._change.shapes_rewards:
            told = (report.name for report in self.spec.reports)
            options = dataclasses.replace(options, info_keys=tuple(sorted({*options.info_keys, *told})))
        return WrappedEnv(self, self._change, self._factory.start(options))

    def _shaping(self, index: int) -> Callable[..., np.ndarray]:
        """What `reward_shaping` at a place in the chain makes of a step of N environments; numpy arrays."""
        wrapper, below = self._chain[index], self._chain[:index]
        assert isinstance(wrapper, RewardShaping)
        shaped = jax.jit(
            lambda before, action, reward, after, info: jax.vmap(wrapper.shaped)(
                self._observed(before, None, below), action, reward, self._observed(after, None, below), info
            )
        )

        def change(*step: Any) -> np.ndarray:
            # Beside the learner's program, not behind it where that is on another device.
            with jax.default_device(jax.local_devices(backend="cpu")[0]):
                return np.asarray(shaped(*step))

        return change

    def _check(self) -> None:
        """Refuses what the observations that are kept do not tell, and shaping where JAX has no CPU."""
        platforms = jax.config.jax_platforms or ""  # type: ignore[attr-defined]
        if self._change.shapes_rewards and platforms and "cpu" not in platforms.split(","):
            raise ValueError(
                f"{self.spec.name}: on the host reward_shaping is computed on the CPU, which `JAX_PLATFORMS` "
                f"(={platforms}) leaves out: unset it, or set it to {platforms},cpu"
            )
        order = [type(w) for w in self._chain if isinstance(w, RewardShaping | PreviousReward)]
        if PreviousReward in order and RewardShaping in order[order.index(PreviousReward) :]:
            raise ValueError(f"{self.spec.name}: on the host previous_reward must come after reward_shaping")
        kinds = [type(w) for w in self._chain if isinstance(w, FrameStack | PreviousReward)]
        if kinds not in ([], [FrameStack], [PreviousReward], [FrameStack, PreviousReward]):
            raise ValueError(
                f"{self.spec.name}: on the host frame_stack and previous_reward may be there once each, in "
                "that order"
            )
        if FrameStack in kinds and self.spec.has_action_mask:
            raise ValueError(f"wrapper frame_stack does not serve the action masks of {self.spec.name}")


def _joined(obs: jax.Array, ndim: int) -> jax.Array:
    """[..., K, *S] as [..., *S] with K times the last size: frames that `_StepChange` has stacked."""
    beside = jnp.moveaxis(obs, -1 - ndim, -2)
    return beside.reshape(*beside.shape[:-2], -1)


class _StepChange:
    """What wrappers change of the steps of a group, besides what observations are decoded to."""

    def __init__(self, chain: Sequence[Wrapper], shapings: Sequence[Callable[..., np.ndarray]]):
        """`shapings` are those of `WrappedFactory._shaping`, in the order of the chain."""
        self._chain = [w for w in chain if isinstance(w, RewardWrapper | PreviousReward | RewardShaping)]
        self._shapings = shapings
        self.frames = next((w.frames for w in chain if isinstance(w, FrameStack)), 0)
        self.keeps_reward = any(isinstance(w, PreviousReward) for w in chain)

    @property
    def shapes_rewards(self) -> bool:
        """Whether rewards depend on what was seen and done before."""
        return bool(self._shapings)

    def __call__(self, step: HostStep, before: tuple[Any, np.ndarray] | None = None) -> HostStep:
        """The step with other rewards, of numpy or of traced arrays; the score stays.

        `before` is the observation that the actions were chosen by, and the actions; None at the first step.
        """
        if not self._chain:
            return step
        xp: Any = np if isinstance(step.reward, np.ndarray) else jnp
        reward, seen = step.reward, step.reward
        shapings = iter(self._shapings)
        for wrapper in self._chain:
            if isinstance(wrapper, RewardShaping):
                shape = next(shapings)
                if before is not None:
                    shaped = shape(*before, reward, step.obs, step.info)
                    reward = np.where(step.first, np.float32(0), shaped)
            elif isinstance(wrapper, RewardWrapper):
                reward = xp.where(step.first, np.float32(0), wrapper.change(reward))
            else:
                seen = reward
        obs = {"obs": step.obs, "reward": seen} if self.keeps_reward else step.obs
        return dataclasses.replace(step, reward=reward, obs=obs)

    def stacked(self, before: Any, step: HostStep) -> HostStep:
        """The step with the frames before it in front: [N, K, ...], as the environment stores each."""

        def joined(x: np.ndarray, kept: np.ndarray | None) -> np.ndarray:
            fresh = np.repeat(x[:, None], self.frames, axis=1)
            if kept is None:
                return fresh
            rolled = np.concatenate([kept[:, 1:], x[:, None]], axis=1)
            return np.where(step.first.reshape(-1, *[1] * (rolled.ndim - 1)), fresh, rolled)

        stack = (
            jax.tree.map(lambda x: joined(x, None), step.obs)
            if before is None
            else jax.tree.map(joined, step.obs, before)
        )
        return dataclasses.replace(step, obs=stack)


class WrappedEnv(HostEnv):
    """A batch that `WrappedFactory` started."""

    def __init__(self, factory: WrappedFactory, change: _StepChange, env: HostEnv):
        self.spec, self._factory, self._change, self.env = factory.spec, factory, change, env
        self.num_envs, self.num_groups, self.timeout = env.num_envs, env.num_groups, env.timeout
        self._stacks: dict[int, Any] = {}
        self._last_obs: dict[int, Any] = {}
        self._actions: dict[int, np.ndarray] = {}

    def send(self, group: int, action: np.ndarray) -> None:
        if self._change.shapes_rewards:
            self._actions[group] = np.array(action)
        self.env.send(group, action)

    def recv(self, group: int) -> HostStep:
        step = self.env.recv(group)
        if self._change.frames:
            step = self._change.stacked(self._stacks.get(group), step)
            self._stacks[group] = step.obs
        if not self._change.shapes_rewards:
            return self._change(step)
        before = (self._last_obs[group], self._actions[group]) if group in self._last_obs else None
        # The next `send` may overwrite what the environments have in place.
        self._last_obs[group] = jax.tree.map(np.array, step.obs)
        return self._change(step, before)

    def decode(self, obs: Any) -> Any:
        return self._factory.decode(obs)

    def action_mask(self, obs: Any) -> Any:
        return self._factory.action_mask(obs)

    def traced(self) -> TracedSteps | None:
        # Programs keep nothing between steps in which frames or observations could wait.
        keeps = self._change.frames or self._change.shapes_rewards
        found = None if keeps else self.env.traced()
        return None if found is None else _WrappedSteps(found, self._change)

    def interrupt(self) -> None:
        self.env.interrupt()

    def close(self) -> None:
        self.env.close()


class _WrappedSteps(TracedSteps):
    """See `TracedSteps`; steps of wrapped environments."""

    def __init__(self, steps: TracedSteps, change: _StepChange):
        self.handles, self._steps, self._change = steps.handles, steps, change

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
    """Stands for an environment where only its spec is looked at, and the shapes of its steps."""

    def __init__(self, spec: EnvSpec):
        self.spec = spec

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        return (), zeros(self.spec.observation_space)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        no, nothing = jnp.zeros((), bool), jnp.zeros((), jnp.float32)
        info = {report.name: nothing for report in self.spec.reports}
        return (), TimeStep(zeros(self.spec.observation_space), nothing, no, no, info=info)
