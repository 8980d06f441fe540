"""`previous_action` and `previous_reward`: what a policy did and got, as part of what it sees."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs.base import Box, Dict, Discrete, JaxEnv, Mixed, MultiDiscrete, Space
from jaxrl.envs.graphs import GraphSpace
from jaxrl.envs.names import check_bool
from jaxrl.envs.wrappers.wrapper import ObservedSteps, require_box, without_goals

_WHOLE = "observation"


@dataclasses.dataclass(frozen=True)
class ObservationPart:
    """A vector of numbers that observations of `space` get.

    A Box of one dimension becomes float32 and has them behind its own numbers; a `Dict` has them as one more
    part, `name`; any other observation becomes a `Dict` of `observation` and `name`.
    """

    wrapper: str  # which adds them, for errors
    space: Space  # of the observation without them
    name: str  # of the part
    low: tuple[float, ...]  # [F], as high
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        if isinstance(self.space, GraphSpace):
            raise ValueError(f"wrapper {self.wrapper} does not serve observations that are graphs")
        if isinstance(self.space, Dict) and self.name in dict(self.space.spaces):
            raise ValueError(f"wrapper {self.wrapper}: the observation already has a part {self.name!r}")

    @property
    def _is_appended(self) -> bool:
        return isinstance(self.space, Box) and len(self.space.shape) == 1

    @property
    def joined_space(self) -> Space:
        box = Box(self.low, self.high, (len(self.low),))
        if isinstance(self.space, Dict):
            return Dict(tuple(sorted([*self.space.spaces, (self.name, box)])))
        if isinstance(self.space, Box) and self._is_appended:
            low, high = self.space.low + self.low, self.space.high + self.high
            return Box(low, high, (len(low),))
        return Dict(((_WHOLE, self.space), (self.name, box)))

    def join(self, obs: Any, numbers: jax.Array) -> Any:
        """The observation, an element of `space`, with float32[F]."""
        if isinstance(self.space, Dict):
            return obs | {self.name: numbers}
        if self._is_appended:
            return jnp.concatenate([obs.astype(jnp.float32), numbers])
        return {_WHOLE: obs, self.name: numbers}


class PreviousAction(ObservedSteps):
    """Adds the previous action, and with `reward` the previous reward, to an observation.

    A recurrent policy can then adapt within an episode to what it cannot observe (Duan et al. 2016,
    "RL²"). Discrete actions are one-hot; at the start of an episode both are zero. A vector has them behind
    its own numbers and becomes float32; of other observations they are the parts `previous_action` and
    `previous_reward` of a dict (`ObservationPart`).
    """

    def __init__(self, env: JaxEnv, reward: bool = True):
        super().__init__(env)
        check_bool("wrapper previous_action: reward", reward)
        space = env.spec.observation_space
        low, high = _bounds(env.spec.action_space)
        self._action = ObservationPart("previous_action", space, "previous_action", low, high)
        space = self._action.joined_space
        self._reward: ObservationPart | None = None
        if reward:
            any_number = (-math.inf,), (math.inf,)
            self._reward = ObservationPart("previous_action", space, "previous_reward", *any_number)
            space = self._reward.joined_space
        spec = without_goals(env.spec)
        self.spec = dataclasses.replace(spec, observation_space=space, stacked_frames=1)

    def see(self, obs: Any, key: jax.Array, state: Any, action: Any, reward: jax.Array) -> Any:
        zeros = jnp.zeros(len(self._action.low), jnp.float32)
        obs = self._action.join(obs, zeros if action is None else _features(self.spec.action_space, action))
        return obs if self._reward is None else self._reward.join(obs, reward.reshape(1))


def _bounds(space: Space) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Bounds of `_features`."""
    if isinstance(space, Box):
        return space.low, space.high
    if isinstance(space, Dict):
        raise ValueError("wrapper previous_action does not serve Dict actions")
    if isinstance(space, Mixed):
        low, high = zip(*(_bounds(part) for _, part in space.spaces), strict=True)
        return sum(low, ()), sum(high, ())
    size = space.num_choices
    return (0.0,) * size, (1.0,) * size


def _features(space: Space, action: jax.Array) -> jax.Array:
    """float32[F]: one-hot per discrete component, a Box action as it is."""
    if isinstance(space, Discrete):
        return jax.nn.one_hot(action, space.n, dtype=jnp.float32)
    if isinstance(space, MultiDiscrete):
        hot = [jax.nn.one_hot(action[i], n, dtype=jnp.float32) for i, n in enumerate(space.nvec)]
        return jnp.concatenate(hot)
    if isinstance(space, Mixed):
        parts = space.parts(action)
        return jnp.concatenate([_features(part, parts[name]) for name, part in space.spaces])
    return action.reshape(-1).astype(jnp.float32)


class PreviousReward(ObservedSteps):
    """Appends the previous reward to a vector observation, 0 at the start of an episode.

    The observation becomes float32. `previous_action` appends the action too.
    """

    def __init__(self, env: JaxEnv):
        super().__init__(env)
        space = require_box("previous_reward", env, ndim=1)
        box = Box((*space.low, -math.inf), (*space.high, math.inf), (space.shape[0] + 1,))
        self.spec = dataclasses.replace(env.spec, observation_space=box, stacked_frames=1)

    def see(self, obs: jax.Array, key: jax.Array, state: Any, action: Any, reward: jax.Array) -> jax.Array:
        return with_number(obs, reward)


def with_number(obs: jax.Array, number: jax.Array) -> jax.Array:
    """float32[..., F + 1]: observations [..., F] and one number [...] each."""
    return jnp.concatenate([obs.astype(jnp.float32), number[..., None]], axis=-1)
