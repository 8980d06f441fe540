"""`sticky_actions` and `action_repeat`: other actions carried out than given, or more often."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Dict, JaxEnv, TimeStep
from jaxrl.envs.checks import is_real
from jaxrl.envs.names import check_positive
from jaxrl.envs.reports import PER_EPISODE, joined_key, names_of
from jaxrl.envs.trees import strong_types
from jaxrl.envs.wrappers.wrapper import Wrapper

_MOST_TIMES = 1000


@flax.struct.dataclass
class StickyActionsState:
    """The wrapped environment's state, the action it last carried out, and bool[]: is there one."""

    env: Any
    action: jax.Array
    started: jax.Array


class StickyActions(Wrapper):
    """Repeats the action last carried out, with `probability`, in place of the one given.

    Machado et al. 2018, "Revisiting the Arcade Learning Environment", section 5.2. An episode's first
    action is always carried out: not every environment has an action that does nothing.
    """

    def __init__(self, env: JaxEnv, probability: float = 0.25):
        if not isinstance(probability, int | float) or not 0 <= probability <= 1:
            raise ValueError(f"wrapper sticky_actions: probability (={probability!r}) must lie in [0, 1]")
        if env.spec.has_action_mask:
            raise ValueError(f"wrapper sticky_actions would repeat actions that {env.spec.name} masks")
        super().__init__(env)
        # The best action depends on whether it will be carried out.
        self.spec = dataclasses.replace(env.spec, has_solver=False)
        self._probability = float(probability)

    def reset(self, key: jax.Array, *task: Any) -> tuple[StickyActionsState, Any]:
        state, obs = self.env.reset(key, *task)
        space = self.spec.action_space
        assert not isinstance(space, Dict)
        return StickyActionsState(state, jnp.zeros(space.shape, space.dtype), jnp.zeros((), bool)), obs

    def step(
        self, key: jax.Array, state: StickyActionsState, action: jax.Array
    ) -> tuple[StickyActionsState, TimeStep]:
        stick_key, env_key = jax.random.split(key)
        repeat = state.started & jax.random.bernoulli(stick_key, self._probability)
        action = jnp.where(repeat, state.action, jnp.asarray(action, state.action.dtype))
        env_state, timestep = self.env.step(env_key, state.env, action)
        return StickyActionsState(env_state, action, jnp.ones((), bool)), timestep

    def inner(self, state: Any) -> Any:
        return state.env


class ActionRepeat(Wrapper):
    """Carries every action out `times` times, or until the episode ends, as one step.

    Its reward is the sum, its observation the last. An entry of `info` joins its values at these steps that
    are not NaN: their sum, largest, mean or last, as it is reported. Each of these is also there by
    `joined_key`, for reports and rules of success that the environment does not know of.
    """

    def __init__(self, env: JaxEnv, times: int):
        super().__init__(env)
        self._times = check_positive("wrapper action_repeat: times", times, _MOST_TIMES)
        if env.spec.has_action_mask:
            raise ValueError(f"wrapper action_repeat would repeat actions that {env.spec.name} masks")
        limit = env.spec.max_episode_steps
        # Rewards of several steps do not follow from the goal achieved after the last.
        shorter = limit and -(-limit // times)
        self.spec = dataclasses.replace(
            env.spec, max_episode_steps=shorter, goals=None, stacked_frames=1, has_solver=False
        )
        self._declared = {report.name: report.per_episode for report in env.spec.reports}

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        keys = jax.random.split(key, self._times)
        first = strong_types(self.env.step(keys[0], state, action))

        def again(
            last: tuple[Any, TimeStep], key: jax.Array
        ) -> tuple[tuple[Any, TimeStep], tuple[dict[str, jax.Array], jax.Array]]:
            state, timestep = last
            next_state, following = strong_types(self.env.step(key, state, action))
            one, two = timestep.score, following.score
            both = dataclasses.replace(  # the later, with what adds up
                following,
                reward=timestep.reward + following.reward,
                score=None if one is None or two is None else one + two,
            )
            keep = lambda old, new: jnp.where(timestep.done, old, new)  # noqa: E731
            return jax.tree.map(keep, last, (next_state, both)), (following.info, ~timestep.done)

        (state, timestep), (later, is_made) = jax.lax.scan(again, first, keys[1:])
        info = jax.tree.map(lambda x, rest: jnp.concatenate([x[None], rest]), first[1].info, later)
        said = self._info(info, jnp.concatenate([jnp.ones(1, bool), is_made]))
        return state, dataclasses.replace(timestep, info=timestep.info | said)

    def _info(self, info: dict[str, jax.Array], is_made: jax.Array) -> dict[str, jax.Array]:
        """float32[] of each entry that is a number; `info` is [times] each, `is_made` bool[times]."""
        numbers = {
            name: x.astype(jnp.float32) for name, x in info.items() if x.ndim == 1 and is_real(x.dtype)
        }
        found: dict[str, jax.Array] = {}
        for name in names_of(numbers):
            # Steps that stand for several themselves already have each of them.
            of_each = {how: numbers.get(joined_key(name, how), numbers[name]) for how in PER_EPISODE}
            joined = {how: _joined(how, x, is_made) for how, x in of_each.items()}
            found |= {joined_key(name, how): x for how, x in joined.items()}
            found[name] = joined[self._declared.get(name, "last")]
        return found


def _joined(per_episode: str, x: jax.Array, is_made: jax.Array) -> jax.Array:
    """float32[] of float32[times]; NaN if no step that was made has a value."""
    is_said = is_made & (x == x)
    if per_episode == "max":
        value = jnp.max(x, where=is_said, initial=-jnp.inf)
    elif per_episode == "last":
        value = x[jnp.max(jnp.where(is_said, jnp.arange(len(x)), 0))]
    else:
        value = jnp.sum(jnp.where(is_said, x, 0.0))
        value = value / jnp.maximum(jnp.sum(is_said), 1) if per_episode == "mean" else value
    return jnp.where(is_said.any(), value, jnp.nan)
