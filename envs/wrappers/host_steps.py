"""Parts of a row that wrappers over host environments keep, show and change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.host_env import CentralHostFactory, HostFactory, HostStep
from jaxrl.envs.spaces import Space, zeros
from jaxrl.envs.wrappers.agents import CENTRAL, OWN, AgentId, CentralObservation
from jaxrl.envs.wrappers.observations import FrameStack
from jaxrl.envs.wrappers.previous_action import PreviousReward, with_number
from jaxrl.envs.wrappers.rewards import ShapedReward
from jaxrl.envs.wrappers.wrapper import ObservationWrapper, RewardWrapper, Wrapper


class KeptObservations:
    """Observations as a chain of wrappers shows them, made of what is kept of each row.

    That is the observation as the environment stores it. Of K `frames` it is the latest K, [N, K, ...], the
    oldest first. With `previous_reward` it is {"obs": that, "reward": float32[N, P] or [N, K, P]}: the reward
    at the place of each of P such wrappers.

    Attributes:
      frames: K, as many as all `frame_stack` of the chain look back, so that one around another works.
      num_rewards: P.
    """

    def __init__(self, factory: HostFactory, chain: Sequence[Wrapper]):
        self._factory = factory
        self._chain = chain
        self.frames = 1 + sum(w.frames - 1 for w in chain if isinstance(w, FrameStack))
        self.num_rewards = sum(isinstance(w, PreviousReward) for w in chain)

    def show(self, kept: Any, depth: int | None = None) -> Any:
        """The newest observation as the innermost `depth` wrappers show it, all of them with None.

        `kept` has any leading dimensions; traced.
        """
        raw, reward = (kept["obs"], kept["reward"]) if self.num_rewards else (kept, None)
        obs = self._factory.decode(raw)
        stacked = self.frames > 1
        place = 0
        space = self._factory.spec.observation_space
        for wrapper in self._chain[:depth]:
            if isinstance(wrapper, ObservationWrapper):
                observe: Callable[[Any], Any] = wrapper.observe
                # A wrapper sees one observation.
                for _ in range(_num_leading(obs, space)):
                    observe = jax.vmap(observe)
                obs = observe(obs)
            elif isinstance(wrapper, AgentId):  # of several agents nothing is stacked
                obs = wrapper.append(obs, _num_leading(obs, space) - 1)
            elif isinstance(wrapper, CentralObservation):
                obs = {CENTRAL: cast(CentralHostFactory, self._factory).central(raw), OWN: obs}
            elif isinstance(wrapper, FrameStack):
                if stacked:
                    obs = _join_frames(obs, wrapper.frames, _num_leading(obs, space) - 1)
            elif isinstance(wrapper, PreviousReward):
                assert reward is not None
                # Stacks inside have joined the earliest frames with later ones.
                numbers = reward[..., -obs.shape[-2] :, place] if stacked else reward[..., place]
                obs = with_number(obs, numbers)
                place = place + 1
            space = wrapper.spec.observation_space
        if not stacked:
            return obs
        axis = _num_leading(obs, space) - 1
        return jax.tree.map(lambda x: jax.lax.index_in_dim(x, -1, axis, keepdims=False), obs)

    def latest(self, step: HostStep, rows: Any, before: Any) -> Any:
        """Rows [N, ...] of this step, after the earlier ones if frames are stacked; of numpy.

        `before` is the result for the row before; None at the first.
        """
        if self.frames == 1:
            return rows

        def joined(x: np.ndarray, earlier: np.ndarray | None = None) -> np.ndarray:
            fresh = np.repeat(x[:, None], self.frames, axis=1)
            if earlier is None:
                return fresh
            rolled = np.concatenate([earlier[:, 1:], x[:, None]], axis=1)
            return np.where(step.first.reshape(-1, *[1] * (rolled.ndim - 1)), fresh, rolled)

        return jax.tree.map(joined, rows) if before is None else jax.tree.map(joined, rows, before)

    def keep(self, step: HostStep, obs: Any, rewards: Sequence[Any], before: Any) -> Any:
        """The part of a row that is kept; of numpy, or traced if no frames are stacked.

        `obs` is the `latest` of its observation, `rewards` are float32[N] at the places of the innermost
        `previous_reward`, the known ones; `before` is what was kept of the row before, None at the first.
        """
        if not self.num_rewards:
            return obs
        xp: Any = np if isinstance(step.reward, np.ndarray) else jnp
        missing = [xp.zeros_like(step.reward)] * (self.num_rewards - len(rewards))
        columns = xp.stack([*rewards, *missing], axis=-1)
        reward = self.latest(step, columns, None if before is None else before["reward"])
        return {"obs": obs, "reward": reward}


def _num_leading(obs: Any, space: Space) -> int:
    """Dimensions in front of the space's own."""
    one: int = jax.tree.leaves(obs)[0].ndim
    return one - jax.tree.leaves(jax.eval_shape(lambda: zeros(space)))[0].ndim


def _join_frames(obs: jax.Array, frames: int, axis: int) -> jax.Array:
    """[..., K, *S] as [..., K - frames + 1, *S] with `frames` times the last size; K is at `axis`."""
    count = obs.shape[axis] - frames + 1
    shifted = [jax.lax.slice_in_dim(obs, i, i + count, axis=axis) for i in range(frames)]
    return jnp.concatenate(shifted, axis=-1)


class StepChange:
    """The changes that wrappers make to the steps of a group, besides the decoding of observations."""

    def __init__(self, kept: KeptObservations, chain: Sequence[Wrapper]):
        self._kept = kept
        kinds = RewardWrapper | PreviousReward | ShapedReward
        self._chain = [
            (w, _shaping(kept, w, depth) if isinstance(w, ShapedReward) else None)
            for depth, w in enumerate(chain)
            if isinstance(w, kinds)
        ]
        self.stacks_frames = kept.frames > 1
        self.shapes_rewards = any(shape is not None for _, shape in self._chain)

    @property
    def looks_back(self) -> bool:
        """True if a step depends on the one before."""
        return self.stacks_frames or self.shapes_rewards

    def __call__(self, step: HostStep, before: Any = None, action: np.ndarray | None = None) -> HostStep:
        """The step with other rewards, and what is kept as observation; the score stays.

        Of numpy, or of traced arrays if it does not look back. `before` is the observation of this result for
        the row before, None at the first; `action` was chosen by it.
        """
        xp: Any = np if isinstance(step.reward, np.ndarray) else jnp
        reward = step.reward
        seen = list[Any]()
        earlier = before["obs"] if before is not None and self._kept.num_rewards else before
        obs = self._kept.latest(step, step.obs, earlier)
        for wrapper, shape in self._chain:
            if shape is not None:
                if before is not None:
                    after = self._kept.keep(step, obs, seen, before)
                    reward = xp.where(step.first, np.float32(0), shape(before, action, reward, after, step))
            elif isinstance(wrapper, RewardWrapper):
                reward = xp.where(step.first, np.float32(0), wrapper.change(reward))
            else:
                seen.append(reward)
        return dataclasses.replace(step, reward=reward, obs=self._kept.keep(step, obs, seen, before))


def _shaping(kept: KeptObservations, wrapper: ShapedReward, depth: int) -> Callable[..., np.ndarray]:
    """The rewards, of numpy, that a shaping wrapper around `depth` other wrappers gives to N environments."""

    @jax.jit
    def new_reward(
        before: Any, action: Any, reward: Any, after: Any, info: Any, terminated: Any
    ) -> jax.Array:
        seen = kept.show(before, depth)
        now = kept.show(after, depth)
        return jax.vmap(wrapper.new_reward)(seen, action, reward, now, info, terminated)

    def shape(before: Any, action: Any, reward: Any, after: Any, step: HostStep) -> np.ndarray:
        # Beside the learner's program, not behind it if that is on another device.
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            return np.asarray(new_reward(before, action, reward, after, step.info, step.terminated))

    return shape
