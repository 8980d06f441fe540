"""Several environments for one policy, `jaxrl:Mixture`: padded to the same spaces, each with its number."""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, InfoMetric, JaxEnv, TimeStep
from jaxrl.envs.names import check_positive, format_call
from jaxrl.envs.tasks import default_arguments
from jaxrl.envs.trees import strong_types

OBSERVATION, TASK = "observation", "task"  # the parts of an observation
_MOST_TASKS = 1_000
# Separates the sampling of a task from the keys of its reset.
_CHOICE = 0x43484F49
NAME = "jaxrl:Mixture"
CLASSIC = ("gymnax:CartPole-v1", "gymnax:Acrobot-v1", "gymnax:MountainCar-v0")


@dataclasses.dataclass(frozen=True)
class TaskLayout:
    """The spaces that several tasks share."""

    names: tuple[str, ...]  # of the tasks, each once
    size: int  # of the longest observation
    action_space: Discrete | Box  # with as many actions as the task that has most
    reports: tuple[InfoMetric, ...]  # what every task reports

    @classmethod
    def of(cls, envs: Sequence[JaxEnv]) -> TaskLayout:
        """The layout of environments; ValueError, one line, if they have no spaces that can be shared."""
        if not 1 <= len(envs) <= _MOST_TASKS:
            raise ValueError(f"tasks must be 1 to {_MOST_TASKS} environments, not {len(envs)}")
        sizes = []
        for env in envs:
            space = env.spec.observation_space
            if env.spec.agents:
                raise ValueError(f"the task {env.spec.name} has several agents; tasks have one")
            if not isinstance(space, Box) or len(space.shape) != 1:
                raise ValueError(
                    f"the task {env.spec.name} must have a vector as its observation; the wrapper "
                    "flatten_observation makes one of other shapes"
                )
            sizes.append(space.shape[0])
        common = set(envs[0].spec.reports).intersection(*(env.spec.reports for env in envs))
        reports = tuple(report for report in envs[0].spec.reports if report in common)
        return cls(_short_names(envs), max(sizes), _shared_actions(envs), reports)

    def spec(self, name: str, max_episode_steps: int | None) -> EnvSpec:
        """The spec of a task, or of all."""
        own = [InfoMetric(_report(task, what), "sum") for task in self.names for what in ("return", "length")]
        vector = Box.of(-np.inf, np.inf, (self.size,))
        return EnvSpec(
            name=name,
            observation_space=Dict(((OBSERVATION, vector), (TASK, Discrete(len(self.names))))),
            action_space=self.action_space,
            max_episode_steps=max_episode_steps,
            has_action_mask=isinstance(self.action_space, Discrete),
            reports=(*self.reports, *own),
            task_names=self.names,
            counts_from_zero=True,
        )

    def own_reports(self, task: int | np.ndarray, reward: jax.Array) -> dict[str, jax.Array]:
        """The parts of a step in the return and length of its task, or of tasks [B]; NaN for other tasks."""
        info = {}
        for i, name in enumerate(self.names):
            own = np.asarray(task) == i
            info[_report(name, "return")] = jnp.where(own, reward, jnp.float32(jnp.nan))
            info[_report(name, "length")] = jnp.where(own, jnp.float32(1.0), jnp.float32(jnp.nan))
        return info


class PaddedTask(JaxEnv):
    """One task with the spaces of all: zeros behind its observation, a mask over actions that it lacks.

    An episode also reports `task/NAME/return` and `task/NAME/length` of this task, and nothing of the others.
    """

    def __init__(self, env: JaxEnv, layout: TaskLayout, index: int):
        self.env = env
        self.index = index
        self._layout = layout
        self.spec = dataclasses.replace(
            layout.spec(env.spec.name, env.spec.max_episode_steps), reset_ratio=env.spec.reset_ratio
        )

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        state, obs = self.env.reset(key, *default_arguments(self.env))
        return state, self._pad(obs)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        state, timestep = self.env.step(key, state, action)
        reward = timestep.reported_reward.astype(jnp.float32)
        info = {x.name: timestep.info[x.name].astype(jnp.float32) for x in self._layout.reports}
        info |= self._layout.own_reports(self.index, reward)
        return state, dataclasses.replace(timestep, obs=self._pad(timestep.obs), score=reward, info=info)

    def action_mask(self, state: Any) -> jax.Array:
        space = self.env.spec.action_space
        most = self._layout.action_space
        assert isinstance(space, Discrete)
        assert isinstance(most, Discrete)
        if not self.env.spec.has_action_mask:
            return jnp.arange(most.n) < space.n
        return jnp.zeros(most.n, bool).at[: space.n].set(self.env.action_mask(state))

    def render(self, state: Any) -> Any:
        return self.env.render(state)  # type: ignore[attr-defined]

    def _pad(self, obs: jax.Array) -> dict[str, jax.Array]:
        padded = jnp.zeros(self._layout.size, jnp.float32).at[: obs.shape[0]].set(obs.astype(jnp.float32))
        return {OBSERVATION: padded, TASK: jnp.int32(self.index)}


@flax.struct.dataclass
class MixtureState:
    """int32[], the task of the episode, and a state of each task; only its own counts."""

    task: jax.Array
    states: tuple[Any, ...]


class TaskMixture(JaxEnv):
    """Several tasks as one environment; each episode is of one of them, sampled by their shares.

    In a batch `jaxrl.envs.vector_mixture.vector_env` gives each row its task once and for all, so that a row
    computes that one alone. As a single environment, in videos or a custom loop, all tasks are computed.

    Attributes:
      tasks: padded.
      pattern: int[P], the tasks of the environments 0 to P - 1; the pattern repeats for the next P.
      layout: the spaces of all.
    """

    def __init__(self, name: str, envs: Sequence[JaxEnv], shares: Sequence[int] = (), only: str = ""):
        """Pads the tasks `envs`; ValueError, one line, if they cannot share a policy, or shares are wrong.

        Args:
          name: of the whole.
          envs: the tasks.
          shares: of P environments so many have each task; empty: one each.
          only: the short name of the one task that is ever played, with the spaces of all; "": all are.
        """
        self._name = name
        self._envs = tuple(envs)
        self._shares = tuple(shares) or (1,) * len(self._envs)
        self._only = only
        self.layout = layout = TaskLayout.of(self._envs)
        self.pattern = _interleaved(self._shares, len(self._envs))
        if only:
            if only not in layout.names:
                raise ValueError(f"{name}: only (={only!r}) must be one of {', '.join(layout.names)}")
            self.pattern = np.array([layout.names.index(only)], np.int32)
        self.tasks = tuple(PaddedTask(env, layout, i) for i, env in enumerate(self._envs))
        limits = [self._envs[i].spec.max_episode_steps for i in sorted(set(self.pattern.tolist()))]
        longest = None if None in limits else max(limit for limit in limits if limit is not None)
        self.spec = layout.spec(name, longest)

    def wrap_tasks(self, wrapper: Callable[[JaxEnv], JaxEnv]) -> TaskMixture:
        """The same with each task wrapped, beneath the padding."""
        return TaskMixture(self._name, [wrapper(env) for env in self._envs], self._shares, self._only)

    def reset(self, key: jax.Array) -> tuple[MixtureState, Any]:
        place = jax.random.randint(jax.random.fold_in(key, _CHOICE), (), 0, len(self.pattern))
        task = jnp.asarray(self.pattern)[place]
        started = strong_types([each.reset(key) for each in self.tasks])
        obs = jax.lax.switch(task, [lambda obs=obs: obs for _, obs in started])
        return MixtureState(task, tuple(state for state, _ in started)), obs

    def step(self, key: jax.Array, state: MixtureState, action: jax.Array) -> tuple[MixtureState, TimeStep]:
        def branch(i: int) -> Callable[[], tuple[tuple[Any, ...], TimeStep]]:
            def step() -> tuple[tuple[Any, ...], TimeStep]:
                after, timestep = self.tasks[i].step(key, state.states[i], action)
                return strong_types(((*state.states[:i], after, *state.states[i + 1 :]), timestep))

            return step

        states, timestep = jax.lax.switch(state.task, [branch(i) for i in range(len(self.tasks))])
        return MixtureState(state.task, states), timestep

    def action_mask(self, state: MixtureState) -> jax.Array:
        pairs = zip(self.tasks, state.states, strict=True)
        masks = [lambda task=task, own=own: task.action_mask(own) for task, own in pairs]
        return jax.lax.switch(state.task, masks)

    def render(self, state: MixtureState) -> Any:
        task = int(state.task)
        return self.tasks[task].render(state.states[task])


def task_of(spec: EnvSpec, obs: Any) -> jax.Array | None:
    """int32[...], the tasks of observations; None of environments that are no mixture."""
    return obs[TASK] if spec.task_names else None


def _interleaved(shares: Sequence[int], count: int) -> np.ndarray:
    """int32[sum of the shares], each task as often as its share, as evenly spread as possible."""
    if len(shares) != count:
        raise ValueError(f"shares (={tuple(shares)}) must be one number for each of {count} tasks")
    for share in shares:
        check_positive("shares", share, 1_000)
    places = [((turn + 0.5) / share, task) for task, share in enumerate(shares) for turn in range(share)]
    return np.array([task for _, task in sorted(places)], np.int32)


def _short_names(envs: Sequence[JaxEnv]) -> tuple[str, ...]:
    """`CartPole-v1` of `gymnax:CartPole-v1`; with a number if two are the same."""
    found: list[str] = []
    for env in envs:
        short = re.sub(r"[^\w.-]", "_", env.spec.name.partition("(")[0].rpartition(":")[2])
        name = short
        number = 2
        while name in found:
            name = f"{short}_{number}"
            number = number + 1
        found.append(name)
    return tuple(found)


def _report(task: str, what: str) -> str:
    return f"{TASK}/{task}/{what}"


def _shared_actions(envs: Sequence[JaxEnv]) -> Discrete | Box:
    spaces = [env.spec.action_space for env in envs]
    discrete = [space for space in spaces if isinstance(space, Discrete)]
    if len(discrete) == len(spaces):
        starts = {space.start for space in discrete}
        # Tasks with numberings of their own have none in common: their policy's is from 0.
        start = starts.pop() if len(starts) == 1 else 0
        return Discrete(max(space.n for space in discrete), start=start)
    first = spaces[0]
    if isinstance(first, Box) and all(space == first for space in spaces):
        return first
    names = ", ".join(env.spec.name for env in envs)
    raise ValueError(f"the tasks {names} must all have discrete actions, or the same continuous ones")


def mixture(tasks: Sequence[str] = CLASSIC, shares: Sequence[int] = (), only: str = "") -> JaxEnv:
    """Several environments as one (docs/tasks.md).

    Args:
      tasks: their names.
      shares: of sum(shares) environments so many have each task; empty: one each.
      only: the short name of the one task that is played, with the spaces of all.
    """
    # The registry imports this suite.
    registry = importlib.import_module("jaxrl.envs.registry")
    if isinstance(tasks, str):
        raise ValueError(f"{NAME}: tasks (={tasks!r}) must be a tuple of names")
    return TaskMixture(NAME, [registry.make(name) for name in tasks], shares, only)


def mixture_name(tasks: Sequence[str], shares: Sequence[int] = ()) -> str:
    return format_call(NAME, {"tasks": tuple(tasks)} | ({"shares": tuple(shares)} if shares else {}))


def module_of(arguments: Mapping[str, Any]) -> str | None:
    """The first module that one of the tasks imports, from its name."""
    registry = importlib.import_module("jaxrl.envs.registry")
    tasks = arguments.get("tasks", ())
    found = [registry.module_of(task) for task in tasks if isinstance(task, str)]
    return next((module for module in found if module is not None), None)
