"""Rollouts of host environments as one compiled program, which steps the environments without Python."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.host_env import HostEnvError, TracedSteps
from jaxrl.experience.collector import HostCollector, HostCollectorOptions
from jaxrl.experience.host.programs import Chosen
from jaxrl.experience.host.stepped_collector import SteppedCollector
from jaxrl.types import Acting, Array, CollectorState, EpisodeTotals, PyTree, Trajectory


@flax.struct.dataclass
class _Group:
    """The point that a group of N environments has reached: its row has been received and no action sent.

    Attributes:
      handle: see `TracedSteps`.
      carry: tree of [N, ...], before the row.
      obs: tree of [N, ...], as the environment stores it.
      first: bool[N], True if that is the first of its episode.
      done: bool[N], True if an episode ended with it.
    """

    handle: Array
    carry: PyTree
    obs: PyTree
    first: Array
    done: Array


class FusedCollector(HostCollector):
    """One program on the CPU that steps the environments, if these can be traced.

    A step costs what the environments and the policy cost, without the Python in between that takes most of
    a rollout of cheap environments. The first rollout, and those in which first episodes are cut off, are
    stepped from Python. What the program waits for is not known, and it cannot be given up half-way: an
    environment counts as hung if a rollout takes longer by `env.timeout` than any before it.

    Args:
      stepped: collects until the environments can be traced; its environments are used from here on.
      traced: of these environments, `env.traced()`.
      without_cache: the context in which a program is compiled that only this process can use.
    """

    def __init__(
        self,
        stepped: SteppedCollector,
        traced: TracedSteps,
        options: HostCollectorOptions,
        without_cache: Callable[[], AbstractContextManager[None]],
    ):
        self.env = stepped.env
        self._without_cache = without_cache
        self._stepped = stepped
        self._traced = traced
        self._length = options.length
        self._run: Any = jax.jit(self._rollout)
        self._groups: list[_Group] | None = None
        self._longest = 0.0
        self._since = 0.0
        self._steps = 0

    def prepare(self, acting: Acting, keys_B: Array) -> None:
        self._stepped.prepare(acting, keys_B)
        lowered = self._run.lower(*jax.device_put((acting, keys_B, self._take_over()), self._stepped.device))
        with self._without_cache():  # it has addresses of this process in it
            self._run = lowered.compile()

    def collect(
        self, state: CollectorState | None, acting: Acting, keys_B: Array, tasks: PyTree = None
    ) -> tuple[CollectorState | None, Trajectory, EpisodeTotals]:
        started = time.monotonic()
        if self._steps and self._traced.is_ready:
            self._stepped.require_wanted()
            self._since = started
            try:
                found = state, *self._collect(acting, keys_B)
            finally:
                self._since = 0.0
        else:
            found = self._stepped.collect(state, acting, keys_B)
        self._longest = max(self._longest, time.monotonic() - started)
        self._steps += self._length
        return found

    def cancel(self) -> None:
        self._stepped.cancel()

    def overdue(self) -> str | None:
        limit = self.env.timeout
        since = self._since
        if since and limit is not None and time.monotonic() - since >= limit + self._longest:
            return f"{self._where()}: did not answer within {limit:g} s"
        return self._stepped.overdue()

    def waits(self) -> dict[str, float]:
        return {}  # nothing is known of what the program waits for

    def _collect(self, acting: Acting, keys_B: Array) -> tuple[Trajectory, EpisodeTotals]:
        if self._groups is None:
            self._groups = self._take_over()
        arguments = jax.device_put((acting, keys_B, self._groups), self._stepped.device)
        try:
            self._groups, trajectory, games, finite = jax.block_until_ready(self._run(*arguments))
        except jax.errors.JaxRuntimeError as error:  # whatever C++ throws
            self.env.close()
            raise HostEnvError(f"{self._where()}: {' '.join(str(error).split())}") from error
        trajectory, games, finite = jax.tree.map(np.asarray, (trajectory, games, finite))
        self._traced.stepped(trajectory.reward, finite)
        return self._stepped.place(trajectory, self._stepped.games.count(**games)[0])

    def _take_over(self) -> list[_Group]:
        """The point at which the rollouts stepped from Python have left every group."""
        stepped = self._stepped
        buffer = stepped.buffer
        assert buffer is not None
        groups = []
        for handle, carry, rows in zip(self._traced.handles, stepped.carries, stepped.rows, strict=True):
            obs, first = buffer.observations(-1, rows)
            done = buffer.terminated[-1, rows] | buffer.truncated[-1, rows]
            groups.append(_Group(handle, carry, obs, first, done))  # type: ignore[arg-type]
        return groups

    def _where(self) -> str:
        steps = f"steps {self._steps + 1} to {self._steps + self._length}"
        return f"{self.env.spec.name}, environments 0 to {self.env.num_envs - 1}, {steps}"

    def _rollout(
        self, acting: Acting, keys_B: Array, groups: list[_Group]
    ) -> tuple[list[_Group], Trajectory, dict[str, Any], Array]:
        """(groups after it, trajectory, arguments of `EpisodeCounter.count`, bool[T, B] of `recv`)."""
        stepped = self._stepped
        programs = stepped.programs
        length = programs.length
        agent = programs.agent

        def act(group: _Group) -> Any:
            return programs.act(acting, group.carry, group.obs, group.first)

        def step(groups: list[_Group], noises: list[PyTree]) -> Any:
            outs = [act(group) for group in groups]
            choices = [agent.choose(out, noise) for out, noise in zip(outs, noises, strict=True)]
            after = []
            rows = []
            for index, (group, out, (action, extras)) in enumerate(zip(groups, outs, choices, strict=True)):
                handle = self._traced.send(index, group.handle, agent.to_env(action))
                told: Any
                handle, told, finite = self._traced.recv(index, handle, group.done)
                after.append(_Group(handle, out.carry, told.obs, group.done, told.done))
                chosen = Chosen(action, extras, agent.bootstrap(out), carries=None)
                rows.append((chosen, group.obs, group.first, dataclasses.replace(told, obs=None), finite))
            return after, rows

        def steps(groups: list[_Group], noises: list[PyTree]) -> Any:
            after, rows = jax.lax.scan(step, groups, noises)
            return after, ([group.carry for group in groups], rows)

        noises = [programs.noise(keys_B[rows], jnp.asarray(stepped.index[rows])) for rows in stepped.rows]
        noises = jax.tree.map(lambda x: x.reshape(-1, programs.chunk, *x.shape[1:]), noises)
        groups, (carries, rows) = jax.lax.scan(steps, groups, noises)
        rows = jax.tree.map(lambda x: x.reshape(length, *x.shape[2:]), rows)
        chosen, *others = zip(*rows, strict=True)
        with_carries = [dataclasses.replace(c, carries=each) for c, each in zip(chosen, carries, strict=True)]
        obs, reset, told, finite = (jax.tree.map(lambda *x: jnp.concatenate(x, 1), *each) for each in others)
        following = jnp.concatenate([reset[1:], jnp.concatenate([group.first for group in groups])[None]])
        cut = told.truncated & ~told.terminated
        trajectory = Trajectory(
            obs=obs,
            next_obs=jax.tree.map(lambda *x: jnp.concatenate(x), *(group.obs for group in groups)),
            reset=reset,
            reward=told.reward,
            terminated=told.terminated,
            truncated=told.truncated,
            valid=~following,
            action_mask=None,
            **programs.finish(with_carries, [agent.bootstrap(act(group)) for group in groups], cut),
        )
        games = {"first": following, "score": told.score, "game_over": told.game_over, "info": told.info}
        return groups, trajectory, games, finite
