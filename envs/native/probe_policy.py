"""Probes of the policy: one kind of action or observation each, and one of its memory."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, JaxEnv, MultiDiscrete, TimeStep
from jaxrl.envs.names import check_positive
from jaxrl.envs.native.probe import SIGN, OneStepProbe, probe_step, random_sign


class ProbeAction(OneStepProbe):
    """One step, constant observation; action 1 is rewarded by 1, action 0 by -1. The best return is 1.

    Fails when the sign of the policy gradient or the pairing of actions and advantages is wrong.
    """

    def first_observation(self, key: jax.Array) -> jax.Array:
        return jnp.ones(1, jnp.float32)

    def reward(self, obs: jax.Array, action: jax.Array) -> jax.Array:
        return jnp.where(action == 1, 1.0, -1.0)


class ProbePolicy(OneStepProbe):
    """One step, observation -1 or 1; action 1 is right at 1 and action 0 at -1. The best return is 1.

    The right action is rewarded by 1, the other by -1. Fails when the policy does not see what it acts on.
    """

    def reward(self, obs: jax.Array, action: jax.Array) -> jax.Array:
        return jnp.where((action == 1) == (obs[0] > 0), 1.0, -1.0)


class ProbeContinuous(OneStepProbe):
    """One step; the reward is -(a - obs / 2)**2 of an action in [-1, 1]. The best return is 0.

    Fails when a Gaussian head's mean, scale or log-probability is wrong.
    """

    action_space = Box.of(-1.0, 1.0, (1,))

    def reward(self, obs: jax.Array, action: jax.Array) -> jax.Array:
        return -jnp.sum((action - obs / 2) ** 2)


class ProbeMultiDiscrete(OneStepProbe):
    """One step; observation one-hot of c in {0, 1, 2}. Reward 1 for the pair (c == 1, (c + 1) % 3), else 0.

    The best return is 1, a uniform policy's 1/6. Fails when the heads of a multi-discrete action are
    mixed up or their log-probabilities are not summed.
    """

    observation_space = Box.of(0.0, 1.0, (3,))
    action_space = MultiDiscrete((2, 3))

    def first_observation(self, key: jax.Array) -> jax.Array:
        return jax.nn.one_hot(jax.random.randint(key, (), 0, 3), 3, dtype=jnp.float32)

    def reward(self, obs: jax.Array, action: jax.Array) -> jax.Array:
        c = jnp.argmax(obs)
        return ((action[0] == 1) == (c == 1)) & (action[1] == (c + 1) % 3)


class ProbeMixed(OneStepProbe):
    """One step; observation one-hot of c in {0, 1, 2}; an action of three parts that all count.

    A third of the reward for `choice` == c, a third for `pair` == (c == 1, 2 - c), and up to a third for
    `push` near (c / 2, -c / 2). The best return is 1. Fails when the parts are mixed up.
    """

    observation_space = Box.of(0.0, 1.0, (3,))
    action_space = Dict(
        (("choice", Discrete(3)), ("pair", MultiDiscrete((2, 3))), ("push", Box.of(-1.0, 1.0, (2,))))
    )

    def first_observation(self, key: jax.Array) -> jax.Array:
        return jax.nn.one_hot(jax.random.randint(key, (), 0, 3), 3, dtype=jnp.float32)

    def reward(self, obs: jax.Array, action: Any) -> jax.Array:
        c = jnp.argmax(obs)
        pair = action["pair"]
        push = action["push"]
        target = jnp.array([0.5, -0.5]) * c.astype(jnp.float32)
        right = (action["choice"] == c).astype(jnp.float32)
        right += (((pair[0] == 1) == (c == 1)) & (pair[1] == 2 - c)).astype(jnp.float32)
        return (right + 1.0 - jnp.minimum(jnp.abs(push - target).mean(), 1.0)) / 3.0


class ProbeDict(OneStepProbe):
    """One step; the action is two bits: `2 * (image is bright) + (vector > 0)`. The best return is 1.

    The right action is rewarded by 1, others by 0, so a policy that sees only one of the two keys gets 1/2.
    The image is uint8 [8, 8, 1], all 0 or all 255. Fails when a key is dropped or an image not scaled.
    """

    observation_space = Dict((("image", Box.of(0, 255, (8, 8, 1), np.uint8)), ("vector", SIGN)))
    action_space = Discrete(4)

    def first_observation(self, key: jax.Array) -> dict[str, jax.Array]:
        image_key, vector_key = jax.random.split(key)
        bright = jax.random.bernoulli(image_key)
        image = jnp.full((8, 8, 1), jnp.where(bright, 255, 0), jnp.uint8)
        return {"image": image, "vector": random_sign(vector_key)}

    def reward(self, obs: dict[str, jax.Array], action: jax.Array) -> jax.Array:
        bright = obs["image"][0, 0, 0] > 0
        positive = obs["vector"][0] > 0
        return action == 2 * bright.astype(jnp.int32) + positive.astype(jnp.int32)


@flax.struct.dataclass
class MaskState:
    """int32[] steps taken, and int32[] the action that is forbidden now."""

    time: jax.Array
    forbidden: jax.Array


class ProbeMask(JaxEnv):
    """Three actions, one of them forbidden at random and to be seen in the mask alone; `steps` steps.

    An allowed action is rewarded by 1; a forbidden one by -100, and the episode terminates. With masks every
    policy returns `steps`. Fails when the mask of another step or environment is applied, or none.
    """

    def __init__(self, steps: int = 4):
        self._steps = check_positive("jaxrl:ProbeMask: steps", steps)
        self.spec = EnvSpec(
            name=f"jaxrl:ProbeMask({steps=})",
            observation_space=Box.of(1.0, 1.0, (1,)),
            action_space=Discrete(3),
            max_episode_steps=steps,
            has_action_mask=True,
        )

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        return MaskState(jnp.zeros((), jnp.int32), _forbid(key)), jnp.ones(1, jnp.float32)

    def step(self, key: jax.Array, state: MaskState, action: jax.Array) -> tuple[Any, TimeStep]:
        illegal = action == state.forbidden
        time = state.time + 1
        timestep = probe_step(
            jnp.ones(1, jnp.float32),
            jnp.where(illegal, -100.0, 1.0),
            terminated=illegal | (time >= self._steps),
        )
        return MaskState(time, _forbid(key)), timestep

    def action_mask(self, state: MaskState) -> jax.Array:
        return jnp.arange(3) != state.forbidden


def _forbid(key: jax.Array) -> jax.Array:
    return jax.random.randint(key, (), 0, 3)


@flax.struct.dataclass
class MemoryState:
    """int32[] steps taken, and float32[], the cue (-1 or 1)."""

    time: jax.Array
    cue: jax.Array


class ProbeMemory(JaxEnv):
    """The first observation holds a cue that must be answered `delay` steps later. The best return is 1.

    Observation float32[2]: the cue (-1 or 1) in the first, 0 later; and 1 where the answer is due. There
    action 1 is right for the cue 1 and action 0 for -1: reward 1, else -1, and the episode terminates.
    Without memory the expected return is 0. With a delay longer than the rollout it fails when the carry
    does not live across rollouts; with any, when the carry is reset or stored at the wrong step.
    """

    def __init__(self, delay: int = 4):
        self._delay = check_positive("jaxrl:ProbeMemory: delay", delay)
        self.spec = EnvSpec(
            name=f"jaxrl:ProbeMemory({delay=})",
            observation_space=Box.of((-1.0, 0.0), (1.0, 1.0), (2,)),
            action_space=Discrete(2),
            max_episode_steps=delay + 1,
        )

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        state = MemoryState(jnp.zeros((), jnp.int32), random_sign(key)[0])
        return state, self._observe(state)

    def step(self, key: jax.Array, state: MemoryState, action: jax.Array) -> tuple[Any, TimeStep]:
        due = state.time >= self._delay
        reward = jnp.where(due, jnp.where((action == 1) == (state.cue > 0), 1.0, -1.0), 0.0)
        state = MemoryState(state.time + 1, state.cue)
        return state, probe_step(self._observe(state), reward, terminated=due)

    def _observe(self, state: MemoryState) -> jax.Array:
        cue = jnp.where(state.time == 0, state.cue, 0.0)
        return jnp.stack([cue, (state.time == self._delay).astype(jnp.float32)])
