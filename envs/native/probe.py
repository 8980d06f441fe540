"""Probe environments: each isolates one part of a learner, so that a failure names the bug. First the value.

The idea is Andy Jones's ("Debugging RL, without the agonizing pain"): start where nothing but the value
loss can be wrong, and add one thing at a time. The answer of every probe is known exactly and is in
its docstring.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs.base import Box, Discrete, EnvSpec, JaxEnv, Space, TimeStep
from jaxrl.envs.names import check_positive

SIGN = Box.of(-1.0, 1.0, (1,))


def probe_step(obs: Any, reward: Any, terminated: Any = False, truncated: Any = False) -> TimeStep:
    """A `TimeStep` whose scalars may be Python numbers."""
    return TimeStep(
        obs=obs,
        reward=jnp.asarray(reward, jnp.float32),
        terminated=jnp.asarray(terminated, bool),
        truncated=jnp.asarray(truncated, bool),
    )


def random_sign(key: jax.Array) -> jax.Array:
    """float32[1]: -1 or 1, equally likely."""
    return jax.random.rademacher(key, (1,), jnp.float32)


class OneStepProbe(JaxEnv):
    """Episodes of a single step that always terminate; the state is the observation."""

    observation_space: Space = SIGN
    action_space: Space = Discrete(2)

    def __init__(self) -> None:
        self.spec = EnvSpec(
            name=f"jaxrl:{type(self).__name__}",
            observation_space=self.observation_space,
            action_space=self.action_space,
            max_episode_steps=1,
        )

    def first_observation(self, key: jax.Array) -> Any:
        return random_sign(key)

    def reward(self, obs: Any, action: jax.Array) -> jax.Array | float:
        raise NotImplementedError

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        obs = self.first_observation(key)
        return obs, obs

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        return state, probe_step(state, self.reward(state, action), terminated=True)


class ProbeValue(OneStepProbe):
    """One step, constant observation, reward 1. The value is 1.

    Fails when the value loss or the optimiser is wrong.
    """

    def first_observation(self, key: jax.Array) -> jax.Array:
        return jnp.ones(1, jnp.float32)

    def reward(self, obs: jax.Array, action: jax.Array) -> float:
        return 1.0


class ProbeObservation(OneStepProbe):
    """One step, observation -1 or 1, reward equal to it. The value is the observation.

    Fails when observations do not reach the network, or are paired with the wrong rows.
    """

    def reward(self, obs: jax.Array, action: jax.Array) -> jax.Array:
        return obs[0]


class _CountingProbe(JaxEnv):
    """Episodes of `steps` steps; the state is int32[], the number of steps taken."""

    def __init__(self, steps: int, observation_size: int, name: str):
        self._steps = steps
        self.spec = EnvSpec(
            name=name,
            observation_space=Box.of(0.0, 1.0, (observation_size,)),
            action_space=Discrete(2),
            max_episode_steps=steps,
        )

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        time = jnp.zeros((), jnp.int32)
        return time, self.observe(time)

    def observe(self, time: jax.Array) -> jax.Array:
        """float32[O]: the observation after `time` steps."""
        raise NotImplementedError


class ProbeDiscount(_CountingProbe):
    """Two steps with the observations 0 and 1, reward 1 with the second. The values are gamma and 1.

    Fails when the discount or the bootstrap from step to step is wrong.
    """

    def __init__(self) -> None:
        super().__init__(2, 1, "jaxrl:ProbeDiscount")

    def observe(self, time: jax.Array) -> jax.Array:
        return jnp.minimum(time, 1).astype(jnp.float32).reshape(1)

    def step(self, key: jax.Array, state: jax.Array, action: jax.Array) -> tuple[Any, TimeStep]:
        time = state + 1
        return time, probe_step(self.observe(time), time == 2, terminated=time == 2)


class ProbeTruncation(_CountingProbe):
    """Constant observation, reward 1, cut off every `steps` steps. The value is 1 / (1 - gamma).

    Fails when truncation is taken for termination: the value then falls below that.
    """

    def __init__(self, steps: int = 5):
        super().__init__(
            check_positive("jaxrl:ProbeTruncation: steps", steps), 1, f"jaxrl:ProbeTruncation({steps=})"
        )

    def observe(self, time: jax.Array) -> jax.Array:
        return jnp.ones(1, jnp.float32)

    def step(self, key: jax.Array, state: jax.Array, action: jax.Array) -> tuple[Any, TimeStep]:
        time = state + 1
        return time, probe_step(self.observe(time), 1.0, truncated=time >= self._steps)


class ProbeTermination(_CountingProbe):
    """Reward 1 for `steps` steps, then termination; the observation is the step, one-hot.

    The value after t steps is (1 - gamma**(steps - t)) / (1 - gamma). Fails when the value of what follows
    a termination leaks into the episode before it. The terminal observation is all zeros.
    """

    def __init__(self, steps: int = 5):
        check_positive("jaxrl:ProbeTermination: steps", steps)
        super().__init__(steps, steps, f"jaxrl:ProbeTermination({steps=})")

    def observe(self, time: jax.Array) -> jax.Array:
        return jax.nn.one_hot(time, self._steps, dtype=jnp.float32)

    def step(self, key: jax.Array, state: jax.Array, action: jax.Array) -> tuple[Any, TimeStep]:
        time = state + 1
        return time, probe_step(self.observe(time), 1.0, terminated=time >= self._steps)
