"""Rollouts of host environments as one compiled program, which steps the environments without Python."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from envs.base import HostEnvError, TracedSteps
from jaxrl.parallel.compilation import never_cached
from jaxrl.rollout.device import EpisodeTotals
from jaxrl.rollout.host.collector import Chosen, HostRollout, Programs
from jaxrl.rollout.host.waiting import Cancelled
from jaxrl.types import Array, PyTree, Trajectory


@flax.struct.dataclass
class _Group:
    """Where a group of N environments is: its row has been received and no action sent.

    Attributes:
      handle: see `TracedSteps`.
      carry: tree of [N, ...], before the row.
      obs: tree of [N, ...], as the environment stores it.
      first: bool[N], whether that is the first of its episode.
      done: bool[N], whether an episode ended with it.
    """

    handle: Array
    carry: PyTree
    obs: PyTree
    first: Array
    done: Array


class FusedRollout(HostRollout):
    """A `HostRollout` that is one program on the CPU, where the environments can be traced.

    A step costs what the environments and the policy cost, without the Python in between that takes most of
    a rollout of cheap environments. The first rollout, and those in which first episodes are cut off, are
    stepped from Python. What the program waits for is not known, and it cannot be given up half-way: an
    environment counts as hung where a rollout takes longer by `env.timeout` than any before it.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._traced = self.env.traced()
        if self._traced is not None:
            program = _Program(self._programs, self._traced, tuple(self._rows))
            self._run: Any = jax.jit(program.rollout)
        self._groups: list[_Group] | None = None
        self._longest, self._since, self._steps = 0.0, 0.0, 0

    def prepare(self, params: PyTree, obs_stats: PyTree, keys_B: Array) -> None:
        super().prepare(params, obs_stats, keys_B)
        if self._traced is not None:
            arguments = jax.device_put((params, obs_stats, keys_B, self._received()), self.device)
            lowered = self._run.lower(*arguments)
            with never_cached():  # it has addresses of this process in it
                self._run = lowered.compile()

    def collect(
        self,
        params: PyTree,
        obs_stats: PyTree,
        keys_B: Array,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> tuple[Trajectory, EpisodeTotals]:
        started = time.monotonic()
        if self._steps and self._traced is not None and self._traced.is_ready:
            if cancelled():
                raise Cancelled
            self._since = started
            try:
                found = self._collect_fused(self._traced, params, obs_stats, keys_B)
            finally:
                self._since = 0.0
        else:
            found = super().collect(params, obs_stats, keys_B, cancelled)
        self._longest = max(self._longest, time.monotonic() - started)
        self._steps += self._length
        return found

    def overdue(self) -> str | None:
        limit, since = self.env.timeout, self._since
        if since and limit is not None and time.monotonic() - since >= limit + self._longest:
            return f"{self._where()}: did not answer within {limit:g} s"
        return super().overdue()

    def waits(self) -> dict[str, float]:
        return super().waits() if self._traced is None else {}

    def _collect_fused(
        self, traced: TracedSteps, params: PyTree, obs_stats: PyTree, keys_B: Array
    ) -> tuple[Trajectory, EpisodeTotals]:
        if self._groups is None:
            self._groups, self._buffer = self._received(), None
        arguments = jax.device_put((params, obs_stats, keys_B, self._groups), self.device)
        try:
            self._groups, trajectory, games, finite = jax.block_until_ready(self._run(*arguments))
        except jax.errors.JaxRuntimeError as error:  # whatever C++ throws
            self.env.close()
            raise HostEnvError(f"{self._where()}: {' '.join(str(error).split())}") from error
        trajectory, games, finite = jax.tree.map(np.asarray, (trajectory, games, finite))
        traced.stepped(trajectory.reward, finite)
        return self._place(trajectory, self._games.count(**games))

    def _received(self) -> list[_Group]:
        """Where the rollouts stepped from Python have left every group."""
        assert self._traced is not None
        buffer = self._buffer
        assert buffer is not None
        groups = []
        for handle, carry, rows in zip(self._traced.handles, self._carries, self._rows, strict=True):
            obs, first = buffer.seen(-1, rows)
            done = buffer.terminated[-1, rows] | buffer.truncated[-1, rows]
            received: Any = (handle, carry, obs, first, done)
            groups.append(_Group(*received))
        return groups

    def _where(self) -> str:
        steps = f"steps {self._steps + 1} to {self._steps + self._length}"
        return f"{self.env.spec.name}, environments 0 to {self.env.num_envs - 1}, {steps}"


@dataclass(frozen=True)
class _Program:
    """The rollout of all groups, which take turns; `rows` are the environments of each."""

    programs: Programs
    traced: TracedSteps
    rows: tuple[slice, ...]

    def rollout(
        self, params: PyTree, obs_stats: PyTree, keys_B: Array, groups: list[_Group]
    ) -> tuple[list[_Group], Trajectory, dict[str, Array], Array]:
        """(where the groups are then, trajectory, arguments of `GameBook.count`, bool[T, B] of `recv`)."""
        length, chunk = self.programs.length, self.programs.chunk

        def policy(group: _Group) -> Any:
            return self.programs.act(group.carry, params, obs_stats, group.obs, group.first)

        def step(groups: list[_Group], noises: list[Array]) -> Any:
            outs = [policy(group) for group in groups]
            actions = [out.distribution.sample(noise) for out, noise in zip(outs, noises, strict=True)]
            after, rows = [], []
            for index, (group, out, action) in enumerate(zip(groups, outs, actions, strict=True)):
                handle = self.traced.send(index, group.handle, self.programs.policy.head.to_env(action))
                told: Any
                handle, told, finite = self.traced.recv(index, handle, group.done)
                after.append(_Group(handle, out.carry, told.obs, group.done, told.done))
                chosen = Chosen(action, out.distribution.log_prob(action), out.value, carries=None)
                rows.append((chosen, group.obs, group.first, dataclasses.replace(told, obs=None), finite))
            return after, rows

        def steps(groups: list[_Group], noises: list[Array]) -> Any:
            after, rows = jax.lax.scan(step, groups, noises)
            return after, ([group.carry for group in groups], rows)

        noises = [self.programs.noise(keys_B[rows]) for rows in self.rows]
        noises = jax.tree.map(lambda x: x.reshape(length // chunk, chunk, *x.shape[1:]), noises)
        groups, (carries, rows) = jax.lax.scan(steps, groups, noises)
        rows = jax.tree.map(lambda x: x.reshape(length, *x.shape[2:]), rows)
        chosen, *others = zip(*rows, strict=True)
        with_carries = [dataclasses.replace(c, carries=each) for c, each in zip(chosen, carries, strict=True)]
        obs, reset, told, finite = (jax.tree.map(lambda *x: jnp.concatenate(x, 1), *each) for each in others)
        following = jnp.concatenate([reset[1:], jnp.concatenate([group.first for group in groups])[None]])
        cut = told.truncated & ~told.terminated
        trajectory = Trajectory(
            obs=obs,
            reset=reset,
            reward=told.reward,
            terminated=told.terminated,
            truncated=told.truncated,
            valid=~following,
            action_mask=None,
            **self.programs.finish(with_carries, [policy(group).value for group in groups], cut),
        )
        games = {"first": following, "score": told.score, "game_over": told.game_over}
        return groups, trajectory, games, finite
