"""`trials`: several episodes of one task as one, for policies that learn a task while they play it."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import EnvSpec, InfoMetric, JaxEnv, TimeStep
from jaxrl.envs.names import check_bool, check_positive
from jaxrl.envs.reports import with_report
from jaxrl.envs.tasks import method_of_tasks
from jaxrl.envs.trees import strong_types
from jaxrl.envs.wrappers.previous_action import ObservationPart
from jaxrl.envs.wrappers.wrapper import Wrapper, without_goals

# An environment may split its key, and `split(key, n)[i]` equals `fold_in(key, i)`: far above any `n`.
_TASK = 0x5441534B
_TRIAL = 0x54524941
_MOST_TRIALS = 1000
_SUCCESS = "success"


@flax.struct.dataclass
class TrialsState:
    """State of an episode of several trials."""

    env: Any  # the environment's own, of the trial that is played
    trial: jax.Array  # int32[], its number, from 0
    # `(state, obs)` of the first step of each trial, leaves [count, ...]; of an environment without tasks
    # [1, ...], as all trials begin alike.
    starts: Any


class Trials(Wrapper):
    """Makes an episode of `count` episodes of the environment, its trials, which have the same task.

    A recurrent policy can find out in the first trials what the task is, and use it in later ones (Duan et
    al. 2016, "RL²"; Wang et al. 2016, "Learning to reinforcement learn"): its carry is reset only where the
    task changes. The end of a trial ends nothing for the learner: the step's observation is the first one of
    the next trial, its flags are False, and values and advantages run on. With the last trial the episode
    terminates, also if a limit of steps has ended this trial: no reward can follow.

    The observation gets `trial_start`, 1 at the first observation of a trial and else 0 (`ObservationPart`);
    `previous_action` as the next wrapper adds the action and the reward before, also across trials.

    The task is sampled by the environment's `draw_task` if it has one, and the wrapped environment takes
    none. Otherwise it is the task given to `reset`. Each trial begins in a state sampled for it. Of an
    environment without tasks the whole first state is the task: all trials begin in the same one.

    First states of all trials are computed and kept with the episode's first, so that a step computes no
    reset: `count` times the memory of a state.

    It reports `return_trial_1` to `return_trial_COUNT` of the environment's own reward, and if the
    environment reports `success`, `success_trial_1` and so on; of trials that were not reached, nothing.
    """

    def __init__(self, env: JaxEnv, count: int = 4, sample_tasks: bool = True):
        """Makes episodes of `count` trials.

        Set `sample_tasks` to False if a curriculum or level replay chooses the tasks. Then a task that stands
        for a random one, as the default of `jaxrl:Maze` does, is another in each trial.
        """
        super().__init__(env)
        self._count = check_positive("wrapper trials: count", count, _MOST_TRIALS)
        check_bool("wrapper trials: sample_tasks", sample_tasks)
        self._has_tasks = env.spec.task_space is not None
        self._draw = method_of_tasks(env, "draw_task") if self._has_tasks and sample_tasks else None
        self._flag = ObservationPart("trials", env.spec.observation_space, "trial_start", (0.0,), (1.0,))
        self._says_success = _SUCCESS in [report.name for report in env.spec.reports]
        self.spec = self._spec(without_goals(env.spec))

    def reset(self, key: jax.Array, *task: Any) -> tuple[TrialsState, Any]:
        if self._draw is not None:
            task = (self._draw(jax.random.fold_in(key, _TASK)),)
        numbers = jnp.arange(self._count if self._has_tasks else 1)
        keys = jax.vmap(lambda i: jax.random.fold_in(key, _TRIAL + i))(numbers)
        starts = strong_types(jax.vmap(lambda key: self.env.reset(key, *task))(keys))
        state, obs = _row(starts, 0)
        return TrialsState(state, jnp.zeros((), jnp.int32), starts), self._flag.join(obs, jnp.ones(1))

    def step(self, key: jax.Array, state: TrialsState, action: jax.Array) -> tuple[TrialsState, TimeStep]:
        played, timestep = strong_types(self.env.step(key, state.env, action))
        ends = timestep.done
        is_last = state.trial == self._count - 1
        next_trial = ends & ~is_last
        start = _row(state.starts, state.trial + 1 if self._has_tasks else 0)
        own, obs = jax.tree.map(lambda x, y: jnp.where(next_trial, x, y), start, (played, timestep.obs))
        after = TrialsState(own, state.trial + next_trial.astype(jnp.int32), state.starts)
        return after, dataclasses.replace(
            timestep,
            obs=self._flag.join(obs, next_trial.astype(jnp.float32)[None]),
            terminated=ends & is_last,
            truncated=jnp.zeros((), bool),
            info=timestep.info | self._reports(state.trial, timestep),
        )

    def inner(self, state: TrialsState) -> Any:
        return state.env

    def _reports(self, trial: jax.Array, timestep: TimeStep) -> dict[str, jax.Array]:
        """A step's part in the reports of its own trial; NaN for the other trials."""
        found = {}
        for i in range(self._count):
            names = [(f"return_trial_{i + 1}", timestep.reported_reward)]
            if self._says_success:
                names.append((f"success_trial_{i + 1}", timestep.info[_SUCCESS].astype(jnp.float32) > 0))
            for name, x in names:
                found[name] = jnp.where(trial == i, x.astype(jnp.float32), jnp.float32(jnp.nan))
        return found

    def _spec(self, spec: EnvSpec) -> EnvSpec:
        reports = spec.reports
        for i in range(1, self._count + 1):
            reports = with_report(reports, InfoMetric(f"return_trial_{i}", "sum"))
            if self._says_success:
                reports = with_report(reports, InfoMetric(f"success_trial_{i}", "max"))
        limit = spec.max_episode_steps
        return dataclasses.replace(
            spec,
            observation_space=self._flag.joined_space,
            max_episode_steps=limit and limit * self._count,
            task_space=None if self._draw is not None else spec.task_space,
            reports=reports,
            stacked_frames=1,
        )


def _row(tree: Any, index: Any) -> Any:
    return jax.tree.map(lambda x: x[index], tree)
