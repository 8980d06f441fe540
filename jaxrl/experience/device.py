"""Collecting on the device: JAX environments inside the compiled program (Anakin in Hessel et al. 2021)."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.algorithms import Agent
from jaxrl.envs.base import TimeStep
from jaxrl.envs.spaces import Discrete, MultiDiscrete, has_choice
from jaxrl.envs.trees import select_rows
from jaxrl.envs.vector import Environments
from jaxrl.experience import final_rows
from jaxrl.experience.collector import Collector
from jaxrl.experience.rollout_loop import (
    FinalObservations,
    Packing,
    RolloutLoop,
    SplitStarts,
    StepInputs,
    count_operations,
    is_cut,
    is_small,
    randomness,
    where_cut,
)
from jaxrl.experience.statistics import NO_REPORTS, EpisodeReports, count_episodes
from jaxrl.experience.tasks import TASK_KEY, TaskSampler
from jaxrl.types import Acting, Array, Axis, CollectorState, EpisodeStats, EpisodeTotals, PyTree, Trajectory

# Steps in a turn of the loop, if few kernels count: the operations between two networks become one or two
# kernels, and steps share those that store. A step of more operations would take too long to compile.
_STEPS_OF_TURN = 8
_MOST_OPERATIONS = 750


@dataclass(frozen=True)
class DeviceCollector(Collector):
    """Collects inside a compiled program; pure functions over this device's environments.

    Attributes:
      length: T.
      chunk: L; the carry before every L-th step is kept.
      axis: this device among all; tells the global indices of its environments.
      few_kernels: launch as few kernels per step as possible, without conditionals. What a step stores goes
        into few arrays, first states of episodes are computed whether one starts or not, and the values of
        final observations with the next step's actions.
      unroll: steps in each turn of a loop that does little in each.
      tasks: chooses the task of each episode; None: all have the environment's default, if it has tasks.
    """

    agent: Agent
    env: Environments
    length: int
    chunk: int
    axis: Axis = Axis()  # noqa: RUF009
    few_kernels: bool = False
    unroll: int = 1
    reports: EpisodeReports = NO_REPORTS
    tasks: TaskSampler | None = None

    def init(self, keys_B: Array, tasks: PyTree = None) -> CollectorState:
        """Environments in their first episode, one key each; `tasks` is the state of the sampler."""
        (n,) = keys_B.shape
        env_state: PyTree
        task = self._choose_tasks(tasks, keys_B)
        env_state, obs = self.env.reset(keys_B, self._of_environment(task))
        if self.agent.needs_final_observations:
            env_state = final_rows.begin(self.env, env_state, obs, task)
        zeros = jnp.zeros(n // self.env.spec.num_agents, jnp.float32)
        return CollectorState(
            env_state=env_state,
            obs=obs,
            reset=jnp.ones(n, bool),
            carry=self.agent.initial_carry(n),
            episode=EpisodeStats(
                episode_return=zeros,
                episode_length=zeros.astype(jnp.int32),
                skip=jnp.full(len(zeros), self.env.staggered),
                tallies=self.reports.begin(len(zeros)),
            ),
            task=task,
        )

    def collect(
        self, state: CollectorState | None, acting: Acting, keys_B: Array, tasks: PyTree = None
    ) -> tuple[CollectorState, Trajectory, EpisodeTotals]:
        assert state is not None
        acting = self.agent.prepare(acting)
        given = self._inputs(keys_B, tasks)
        final = None
        if self.few_kernels:
            final = FinalObservations(
                state.obs, self._action_mask(state.env_state), jnp.zeros_like(state.reset)
            )
        start = RolloutLoop(state, final)
        packing, steps_of_turn = self._turns(acting, start, given) if self.few_kernels else (None, 1)
        loop, records, carry = self._steps(acting, start, given, packing, steps_of_turn)
        out, final_bootstrap = self._forward(acting, loop, self._action_mask(loop.at.env_state))
        if packing is not None:
            records = packing.unpack(records)
            # A step's bootstraps were computed in the step after it.
            records["bootstrap"] = jax.tree.map(
                lambda x, last: jnp.concatenate([x[1:], last[None]]), records["bootstrap"], final_bootstrap
            )
        told = records.pop("told")
        task = records.pop("task")
        if self.env.spec.agents:  # the rows of an environment all say the same of it
            told = jax.tree.map(lambda x: x[:, :: self.env.spec.num_agents], told)
        info, reward, done = told
        if records["action_mask"] is not None:
            space = self.env.spec.action_space
            assert isinstance(space, Discrete | MultiDiscrete)
            choice = has_choice(space, records["action_mask"])
            records["extras"] = self.agent.finish(records["extras"], choice)
        last = self.agent.bootstrap(out)
        trajectory = Trajectory(**records, carry=carry, next_obs=loop.at.obs, last=last)
        episode, totals, episodes = count_episodes(
            reports=self.reports,
            episode=state.episode,
            reward_TB=trajectory.reward if reward is None else reward,
            done_TB=trajectory.terminated | trajectory.truncated if done is None else done,
            info_TB=info,
            valid_TB=None if self.env.spec.agents else trajectory.valid,
            task_TB=task,
            unroll=self.unroll,
        )
        trajectory = dataclasses.replace(trajectory, episodes=episodes)
        return dataclasses.replace(loop.at, episode=episode), trajectory, totals

    def _inputs(self, keys_B: Array, tasks: PyTree) -> StepInputs:
        """The inputs of all steps [T, B, ...], sampled at once."""
        index_B = self.axis.index() * len(keys_B) + jnp.arange(len(keys_B))
        keys_TB, noise_TB = randomness(self.agent, keys_B, index_B, self.length)
        task_TB = None if self.tasks is None else jax.vmap(self._choose_tasks, (None, 0))(tasks, keys_TB)
        starts_TB = None
        if self.few_kernels and not self.env.resets_in_rounds:
            environment_task = self._of_environment(task_TB)
            first = jax.tree.map(lambda x: x[0], environment_task)
            split = SplitStarts.of(self.env.starts, keys_TB[0], first)
            starts_TB = jax.vmap(split.ahead)(keys_TB, environment_task)
        return StepInputs(keys_TB, noise_TB, task_TB, starts_TB)

    def _choose_tasks(self, tasks: PyTree, keys_B: Array) -> PyTree:
        """Tasks of episodes that begin with these keys."""
        if self.tasks is None:
            return None
        return self.tasks.choose(tasks, jax.vmap(lambda key: jax.random.fold_in(key, TASK_KEY))(keys_B))

    def _of_environment(self, task: PyTree) -> PyTree:
        """The part of tasks that the environment gets."""
        return None if self.tasks is None else self.tasks.environment_task(task)

    def _turns(self, acting: Acting, loop: RolloutLoop, given: StepInputs) -> tuple[Packing, int]:
        """The arrangement of records, and the steps in a turn of the loop, that make for few kernels."""
        first = jax.tree.map(lambda x: x[0], given)
        trace = jax.make_jaxpr(functools.partial(self._step, acting), return_shape=True)
        traced, (_, record) = trace(loop, first)
        few = count_operations(traced.jaxpr) <= _MOST_OPERATIONS
        return Packing.of(record), _STEPS_OF_TURN if few else 1

    def _steps(
        self,
        acting: Acting,
        start: RolloutLoop,
        given: StepInputs,
        packing: Packing | None,
        steps_of_turn: int,
    ) -> tuple[RolloutLoop, PyTree, PyTree]:
        """(the loop after T steps, their records [T, ...], the carries [T / L, ...] before each chunk)."""

        def step(loop: RolloutLoop, xs: StepInputs) -> tuple[RolloutLoop, PyTree]:
            if packing is None:
                return self._step(acting, loop, xs)
            # Else XLA computes small states again from those before the turn, in each of its kernels.
            if all(map(is_small, jax.tree.leaves(loop.at.env_state))):
                at = dataclasses.replace(loop.at, env_state=jax.lax.optimization_barrier(loop.at.env_state))
                loop = dataclasses.replace(loop, at=at)
            after, record = self._step(acting, loop, xs)
            return after, packing.pack(record)

        def chunk_of_steps(loop: RolloutLoop, xs: PyTree) -> tuple[RolloutLoop, PyTree]:
            after, records = jax.lax.scan(step, loop, xs, unroll=steps_of_turn)
            return after, (records, loop.at.carry)

        split = lambda x: x.reshape(self.length // self.chunk, self.chunk, *x.shape[1:])  # noqa: E731
        loop, (records, carry) = jax.lax.scan(chunk_of_steps, start, jax.tree.map(split, given))
        return loop, jax.tree.map(lambda x: x.reshape(self.length, *x.shape[2:]), records), carry

    def _forward(self, acting: Acting, loop: RolloutLoop, mask: Array | None) -> tuple[Any, PyTree]:
        """The agent's output; and with `few_kernels` the bootstrap of the step before, else None."""
        at, final = loop.at, loop.final
        if final is None or self.agent.needs_final_observations:
            return self.agent.forward(acting, at.obs, at.carry, at.reset, mask), None
        count = len(at.reset)
        both = lambda x, y: jax.tree.map(lambda a, b: jnp.concatenate([a, b]), x, y)  # noqa: E731
        out = self.agent.forward(
            acting,
            both(at.obs, final.obs),
            both(at.carry, at.carry),
            both(at.reset, jnp.zeros_like(at.reset)),
            both(mask, final.mask),
        )
        # An agent's rate of exploration is one number for all rows.
        part = lambda rows: jax.tree.map(lambda x: x[rows] if x.ndim else x, out)  # noqa: E731
        here, there = part(slice(count)), part(slice(count, None))
        return here, where_cut(final.cut, self.agent.bootstrap(there))

    def _step(
        self, acting: Acting, loop: RolloutLoop, given: StepInputs
    ) -> tuple[RolloutLoop, dict[str, PyTree]]:
        at = loop.at
        mask = self._action_mask(at.env_state)
        out, bootstrap = self._forward(acting, loop, mask)
        if self.agent.asks_solver:
            out = self.agent.add_solution(out, self.env.solve(at.env_state))
        action, extras = self.agent.choose(out, given.noise, self.few_kernels)
        env_state, timestep, begins, valid = self._step_environments(
            given, at.env_state, self.agent.to_env(action)
        )
        # A final row comes after the step that made the first state of the next episode.
        chosen = at.env_state.next_task if self.agent.needs_final_observations else given.task
        if loop.final is None:
            bootstrap = self._bootstrap(acting, timestep, out.carry)
        team = timestep.team
        told = (timestep.info, timestep.score, None) if team is None else (team.info, team.reward, team.done)
        record = {
            "obs": at.obs,
            "reset": at.reset,
            "action": action,
            "action_mask": mask,
            "extras": extras,
            "reward": timestep.reward,
            "terminated": timestep.terminated,
            "truncated": timestep.truncated,
            "bootstrap": bootstrap,
            "valid": valid,
            "task": at.task,
            # Of the episodes, which are counted after the rollout: None if it is the row's own.
            "told": (self.reports.select(told[0]), *told[1:]),
        }
        task = None if at.task is None else select_rows(begins, chosen, at.task)
        at = CollectorState(env_state, timestep.obs, begins, out.carry, at.episode, task)
        final = None
        if self.few_kernels:
            final = FinalObservations(timestep.final_obs, timestep.final_mask, is_cut(timestep))
        return RolloutLoop(at, final), record

    def _step_environments(
        self, given: StepInputs, env_state: PyTree, action: Array
    ) -> tuple[PyTree, TimeStep, Array, Array | None]:
        """(state, timestep, bool[B], True if an episode begins with the next row, `valid` of this row)."""
        task_B = self._of_environment(given.task)
        starts = None
        if given.starts is not None:
            split = SplitStarts.of(self.env.starts, given.keys, task_B)
            starts = split.finish(given.starts, given.keys, task_B)
        options: dict[str, Any] = {"starts": starts, "task_B": task_B}
        if not self.agent.needs_final_observations:
            valid = self.env.is_turn(env_state)
            env_state, timestep = self.env.step(given.keys, env_state, action, **options)
            begins = timestep.done if valid is None else timestep.done | ~valid
            return env_state, timestep, begins, valid
        after, timestep = final_rows.step(
            self.env, given.keys, env_state, action, next_task=given.task, **options
        )
        return after, timestep, env_state.is_final, ~env_state.is_final

    def _action_mask(self, env_state: PyTree) -> Array | None:
        if self.agent.needs_final_observations:
            return final_rows.action_mask(self.env, env_state)
        return self.env.action_mask(env_state)

    def _bootstrap(self, acting: Acting, timestep: TimeStep, carry: PyTree) -> PyTree:
        """`Agent.bootstrap` of final observations, with the carry after the last step; 0 where none was cut.

        Not of s_t, and not of the next episode's first observation (Pardo et al. 2018). Computed only at
        steps at which some environment was truncated: a branch, not a second forward pass every step.
        """
        if self.agent.needs_final_observations:  # they are rows of the trajectory
            return None
        cut = is_cut(timestep)

        def look() -> PyTree:
            out = self.agent.forward(
                acting, timestep.final_obs, carry, jnp.zeros_like(cut), timestep.final_mask
            )
            return where_cut(cut, self.agent.bootstrap(out))

        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(look))
        if nothing is None:
            return None
        return jax.lax.cond(jnp.any(cut), look, lambda: nothing)
