"""Collecting from host environments that Python steps, while the policy works on a device."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxrl.algorithms import Agent
from jaxrl.envs.host_env import HostEnv, group_environments, group_rows
from jaxrl.experience.collector import HostCollector, HostCollectorOptions
from jaxrl.experience.host.episodes import EpisodeCounter
from jaxrl.experience.host.programs import Buffer, Chosen, GroupLoop, GroupPrograms
from jaxrl.experience.host.threads import Cancelled, Watch, by_group
from jaxrl.types import Acting, Array, CollectorState, EpisodeTotals, PyTree, Trajectory


class SteppedCollector(HostCollector):
    """Steps all environments of a `HostEnv` from Python.

    Rows of a trajectory are what the policy saw. The row after an end shows the true final observation:
    the policy consumes it with its live carry, its value is the bootstrap of the row before if that was a
    truncation, and as no transition follows it is not `valid`. The carry is reset at the row after it.

    With one group of environments everything happens strictly in sequence. Two or more are served by a thread
    each: while one steps, the policy works for another; with several cores also for both. Both ways give the
    same rows for the same parameters and keys, up to rounding if the policy sees other batch sizes.

    Args:
      env: none of its groups has been received from yet.

    Attributes:
      device: where the policy works.
      rows: the rows of each group: its environments, or their agents.
      index: int[B], indices of the rows over all processes.
      carries: the policy's carry of each group, before the row that comes next.
      games: the episodes in progress.
      buffer: the one whose last row comes next; None before the first.
      place: turns host arrays into what `collect` returns.
    """

    def __init__(self, agent: Agent, env: HostEnv, options: HostCollectorOptions):
        self.env = env
        self.device = options.device or jax.devices()[0]
        self._length = options.length
        self.rows = [group_rows(env, group) for group in range(env.num_groups)]
        self.programs = programs = GroupPrograms(
            agent, env.decode, env.action_mask, length=options.length, chunk=options.chunk
        )
        self._environments = [group_environments(env, group) for group in range(env.num_groups)]
        num_rows = env.num_envs * env.spec.num_agents
        self.index = np.arange(num_rows) if options.index is None else np.array(options.index)
        self._begin = jax.jit(programs.begin)
        self._step = jax.jit(programs.step, donate_argnums=0)
        self._last = jax.jit(programs.last)
        self._finish = jax.jit(programs.finish)
        self._decode = jax.jit(lambda obs: (env.decode(obs), env.action_mask(obs)))
        self.place = options.place or self._on_device
        self._watch = Watch(env)
        self._inference_seconds = [0.0] * env.num_groups
        carry = jax.device_put(agent.initial_carry(num_rows // env.num_groups), self.device)
        self.carries: list[PyTree] = [carry] * env.num_groups
        self.games = EpisodeCounter(env.num_envs, options.staggered, options.reports)
        self._info_keys = options.reports.info_keys
        self._tasks = options.tasks
        self._playing: PyTree = None
        self.buffer: Buffer | None = None
        self._is_fresh = False  # the buffer holds the first observations only, and no rollout
        self._cancelled = threading.Event()

    def prepare(self, acting: Acting, keys_B: Array) -> None:
        acting, keys_B = jax.device_put((acting, keys_B), self.device)
        buffer = self._next_buffer()
        rows = self.rows[0]
        obs, first = buffer.observations(0, rows)
        loop = self._begin(keys_B[rows], self.index[rows], self.carries[0], acting, obs, first)
        loop, _ = self._step(loop, acting, obs, first)
        last = self._last(loop, acting, obs, first)
        groups = len(self.rows)
        jax.block_until_ready(self._finish([loop.chosen] * groups, [last] * groups, buffer.truncated))
        self._is_fresh = True

    def collect(
        self, state: CollectorState | None, acting: Acting, keys_B: Array, tasks: PyTree = None
    ) -> tuple[CollectorState | None, Trajectory, EpisodeTotals]:
        """As `Collector.collect`; only actions are random.

        `tasks` are [T, B], of episodes that begin after each step; the first of an environment gets none.
        HostEnvError if an environment failed, Cancelled after `cancel`.
        """
        acting, keys_B = jax.device_put((acting, keys_B), self.device)
        buffer = self._next_buffer()
        dealt = None
        if self._tasks is not None:  # the numbers of tasks, by their names in order
            numbers = sorted(self._tasks.environment_task(tasks).items())
            dealt = np.stack([np.asarray(x, np.float64) for _, x in numbers], axis=-1)

        def collect(group: int, failed: Callable[[], bool]) -> tuple[GroupLoop, PyTree]:
            return self._collect(group, acting, keys_B, buffer, failed, dealt)

        loops, lasts = zip(*by_group(collect, len(self.rows)), strict=True)
        self.carries = [loop.carry for loop in loops]
        trajectory = self._trajectory(buffer, [loop.chosen for loop in loops], list(lasts))
        task_TB = None
        if self._tasks is not None:
            self._playing, task_TB = tasks_of_rows(self._playing, tasks, buffer.first[1:])
        told = (buffer.begun, buffer.score, buffer.game_over, buffer.info)
        totals, episodes = self.games.count(*told, task_TB)
        trajectory = dataclasses.replace(trajectory, episodes=episodes)
        return state, *self.place(trajectory, totals)

    def cancel(self) -> None:
        self._cancelled.set()

    def require_wanted(self) -> None:
        """Raises Cancelled after `cancel`."""
        if self._cancelled.is_set():
            raise Cancelled

    def _collect(
        self,
        group: int,
        acting: Acting,
        keys_B: Array,
        buffer: Buffer,
        failed: Callable[[], bool],
        dealt: np.ndarray | None,
    ) -> tuple[GroupLoop, PyTree]:
        """The rollout of one group: what its device keeps, and `Agent.bootstrap` of the row after it."""
        rows = self.rows[group]
        obs, first = buffer.observations(0, rows)
        loop = self._begin(keys_B[rows], self.index[rows], self.carries[group], acting, obs, first)
        for t in range(self._length):
            self.require_wanted()
            if failed():
                raise Cancelled
            started = time.perf_counter()
            loop, action = self._step(loop, acting, obs, first)
            action = np.asarray(action)
            self._inference_seconds[group] += time.perf_counter() - started
            if dealt is not None:
                self.env.deal(group, dealt[t, rows])
            self.env.send(group, action)
            step = self._watch.recv(group)
            buffer.write(t + 1, rows, self._environments[group], step)
            obs, first = buffer.observations(t + 1, rows)
        return loop, self._last(loop, acting, obs, first)

    def overdue(self) -> str | None:
        return self._watch.overdue()

    def waits(self) -> dict[str, float]:
        inference = sum(self._inference_seconds) / len(self._inference_seconds)
        return {"environments": self._watch.seconds, "inference": inference}

    def _next_buffer(self) -> Buffer:
        """A new buffer, whose row 0 is the row that followed the rollout before.

        Always a new one: on CPU a trajectory reads the arrays in place, and the learner may still need it.
        """
        if self.buffer is not None and self._is_fresh:
            self._is_fresh = False
            return self.buffer
        if self.buffer is None:
            steps = [self._watch.recv(g) for g in range(len(self.rows))]
            buffer = Buffer.like(
                steps[0].obs, self._length, self.env.num_envs, self.env.spec.num_agents, self._info_keys
            )
            for rows, environments, step in zip(self.rows, self._environments, steps, strict=True):
                buffer.write(0, rows, environments, step)
        else:
            buffer = self.buffer.successor()
        self.buffer = buffer
        return buffer

    def _trajectory(self, buffer: Buffer, chosen: list[Chosen], lasts: list[PyTree]) -> Trajectory:
        length = self._length
        host: dict[str, Any] = {
            "obs": jax.tree.map(lambda x: x[:length], buffer.obs),
            "next_obs": jax.tree.map(lambda x: x[length], buffer.obs),
            "reset": buffer.first[:length],
            "reward": buffer.reward,
            "terminated": buffer.terminated,
            "truncated": buffer.truncated,
            "valid": ~buffer.first[1:],
        }
        cut = buffer.truncated & ~buffer.terminated
        return Trajectory(**host, **self._finish(chosen, lasts, cut), action_mask=None)

    def _on_device(self, trajectory: Trajectory, totals: EpisodeTotals) -> tuple[Trajectory, EpisodeTotals]:
        trajectory = jax.device_put(trajectory, self.device)
        obs, mask = self._decode(trajectory.obs)
        next_obs, _ = self._decode(trajectory.next_obs)
        trajectory = dataclasses.replace(trajectory, obs=obs, action_mask=mask, next_obs=next_obs)
        return trajectory, jax.device_put(totals, self.device)


def tasks_of_rows(playing: PyTree, task_TB: PyTree, begins_TB: np.ndarray) -> tuple[PyTree, PyTree]:
    """(tasks [B] of the episodes in progress after T steps, [T, B] of the episodes that the rows belong to).

    Episodes that began before any task was dealt hold -1 in everything: they are of no stage.

    Args:
      playing: those before the steps; None if no task was dealt yet.
      task_TB: of the episodes that begin after each step; a tree of [T, B], as a task sampler chose them.
      begins_TB: bool, True if one begins.
    """
    given = jax.tree.map(np.asarray, task_TB)
    if playing is None:
        playing = jax.tree.map(lambda x: np.full_like(x[0], -1), given)
    rows = []
    for t, begins in enumerate(begins_TB):
        rows.append(playing)
        new = jax.tree.map(lambda x, t=t: x[t], given)
        playing = jax.tree.map(lambda x, old, begins=begins: np.where(begins, x, old), new, playing)
    found: PyTree = jax.tree.map(lambda *x: np.stack(x), *rows)
    return playing, found
