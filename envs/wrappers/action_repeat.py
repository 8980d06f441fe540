"""`action_repeat`: one decision for several steps."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from envs.base import JaxEnv, TimeStep
from envs.names import check_positive
from envs.trees import strong_types
from envs.wrappers.wrapper import Wrapper

_MOST_TIMES = 1000


class ActionRepeat(Wrapper):
    """Carries every action out `times` times, or until the episode ends, as one step.

    Its reward is the sum, its observation the last. Of what is reported, entries with "sum" add up and
    entries with "max" keep the largest; the rest is that of the last step.
    """

    def __init__(self, env: JaxEnv, times: int):
        super().__init__(env)
        self._times = check_positive("wrapper action_repeat: times", times, _MOST_TIMES)
        if env.spec.has_action_mask:
            raise ValueError(f"wrapper action_repeat would repeat actions that {env.spec.name} masks")
        limit = env.spec.max_episode_steps
        self.spec = dataclasses.replace(env.spec, max_episode_steps=limit and -(-limit // times))
        self._combine = {report.name: report.per_episode for report in env.spec.reports}

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        keys = jax.random.split(key, self._times)
        first = strong_types(self.env.step(keys[0], state, action))

        def again(last: tuple[Any, TimeStep], key: jax.Array) -> tuple[tuple[Any, TimeStep], None]:
            state, timestep = last
            next_state, following = strong_types(self.env.step(key, state, action))
            both = self._joined(timestep, following)
            keep = lambda old, new: jnp.where(timestep.done, old, new)  # noqa: E731
            return jax.tree.map(keep, last, (next_state, both)), None

        (state, timestep), _ = jax.lax.scan(again, first, keys[1:])
        return state, timestep

    def _joined(self, one: TimeStep, next_one: TimeStep) -> TimeStep:
        """Two steps as one: the later, with what adds up."""
        join = {"sum": jnp.add, "max": jnp.maximum}
        info = {
            name: join[how](one.info[name], x) if (how := self._combine.get(name)) in join else x
            for name, x in next_one.info.items()
        }
        score = None if one.score is None or next_one.score is None else one.score + next_one.score
        return dataclasses.replace(next_one, reward=one.reward + next_one.reward, score=score, info=info)
