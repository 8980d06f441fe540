"""The host runtime: environments on the host, the policy on a device (Sebulba in Hessel et al. 2021).

`HostRollout` steps the environments and returns the same `Trajectory` as the device runtime;
`jaxrl.rollout.host.actor` lets it work in a thread of its own while the learner learns.
"""

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

from envs.base import HostEnv, group_rows
from jaxrl.networks import Policy, normalizer
from jaxrl.networks.distributions import draw_noise
from jaxrl.rollout.device import EpisodeTotals
from jaxrl.rollout.host.buffer import Buffer, GameBook
from jaxrl.rollout.host.waiting import Cancelled, Watch, by_group
from jaxrl.types import Array, PyTree, Trajectory


@flax.struct.dataclass
class Chosen:
    """What the policy did in the rows of one group of N environments.

    Attributes:
      action, log_prob, value: [T, N, ...].
      carries: tree of [T / L, N, ...], the carry before each chunk.
    """

    action: Array
    log_prob: Array
    value: Array
    carries: PyTree


@flax.struct.dataclass
class _Loop:
    """What the device keeps of one group of N environments during a rollout.

    Attributes:
      t: int32[], the row that comes next.
      carry: tree of [N, ...], before that row.
      noise: [T, N, ...] of the actions.
      chosen: filled up to row t.
    """

    t: Array
    carry: PyTree
    noise: Array
    chosen: Chosen


class HostRollout:
    """Collects rollouts of all environments of a `HostEnv`.

    Rows of a trajectory are what the policy saw. The row after an end shows the true final observation:
    the policy consumes it with its live carry, its value is the bootstrap of the row before where that was
    a truncation, and as no transition follows it is not `valid`. The carry is reset at the row after it.

    With one group of environments everything happens strictly in turn. Two or more are served by a thread
    each: while one steps, the policy works for another; with several cores also for both. Both ways give the
    same rows for the same parameters and keys, up to rounding where the policy sees other batch sizes.

    Args:
      policy: the policy.
      env: the environments, none of whose groups has been received from yet. Not closed here.
      length: T.
      chunk: L; the carry before every L-th step is kept.
      clip_obs: bound of normalised observations.
      staggered: whether the first episode of each environment is cut off and should not be reported.
      device: where the policy works; None is JAX's default.
      place: (trajectory, totals) of host arrays and arrays of `device`, observations not decoded -> what
        `collect` returns; None puts everything on `device`.

    Attributes:
      env: the environments.
      device: where the policy works.
    """

    def __init__(
        self,
        policy: Policy,
        env: HostEnv,
        length: int,
        chunk: int,
        clip_obs: float,
        staggered: bool = False,
        device: jax.Device | None = None,
        place: Callable[[Trajectory, np.ndarray], tuple[Trajectory, EpisodeTotals]] | None = None,
    ):
        self.env = env
        self.device = device or jax.devices()[0]
        self._length, self._chunk = length, chunk
        self._rows = [group_rows(env, group) for group in range(env.num_groups)]
        self._programs = programs = Programs(policy, env.decode, length, chunk, clip_obs)
        self._begin = jax.jit(programs.begin)
        self._step = jax.jit(programs.step, donate_argnums=0)
        self._last_value = jax.jit(programs.last_value)
        self._finish = jax.jit(programs.finish)
        self._decode = jax.jit(env.decode)
        self._place = place or self._on_device
        self._watch = Watch(env)
        self._inference_seconds = [0.0] * env.num_groups
        n = env.num_envs // env.num_groups
        carry = jax.device_put(policy.initial_carry(n), self.device)
        self._carries: list[PyTree] = [carry] * env.num_groups
        self._games = GameBook(env.num_envs, staggered)
        self._buffer: Buffer | None = None
        self._is_fresh = False  # the buffer holds the first observations only, and no rollout

    def prepare(self, params: PyTree, obs_stats: PyTree, keys_B: Array) -> None:
        """Compiles everything and waits for the first observations; before the first `collect`."""
        params, obs_stats, keys_B = jax.device_put((params, obs_stats, keys_B), self.device)
        buffer, rows = self._next_buffer(), self._rows[0]
        obs, first = buffer.seen(0, rows)
        loop = self._begin(keys_B[rows], self._carries[0], params, obs_stats, obs, first)
        loop, _ = self._step(loop, params, obs_stats, obs, first)
        value = self._last_value(loop, params, obs_stats, obs, first)
        groups = len(self._rows)
        jax.block_until_ready(self._finish([loop.chosen] * groups, [value] * groups, buffer.truncated))
        self._is_fresh = True

    def collect(
        self,
        params: PyTree,
        obs_stats: PyTree,
        keys_B: Array,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> tuple[Trajectory, EpisodeTotals]:
        """Steps every environment T times.

        Args:
          params: the policy's parameters.
          obs_stats: running moments of the observations, or None.
          keys_B: one key per environment for the actions of this rollout; nothing else is random.
          cancelled: asked once a step; if it says yes, Cancelled is raised.

        Returns:
          (trajectory [T, B, ...] on the device, totals over the episodes that ended).

        Raises:
          HostEnvError: an environment failed.
        """
        params, obs_stats, keys_B = jax.device_put((params, obs_stats, keys_B), self.device)
        buffer = self._next_buffer()

        def collect(group: int, failed: Callable[[], bool]) -> tuple[_Loop, Array]:
            def unwanted() -> bool:
                return failed() or cancelled()

            return self._collect(group, params, obs_stats, keys_B, buffer, unwanted)

        loops, last_values = zip(*by_group(collect, len(self._rows)), strict=True)
        self._carries = [loop.carry for loop in loops]
        trajectory = self._trajectory(buffer, [loop.chosen for loop in loops], list(last_values))
        return self._place(trajectory, self._games.count(buffer.first[1:], buffer.score, buffer.game_over))

    def _collect(
        self,
        group: int,
        params: PyTree,
        obs_stats: PyTree,
        keys_B: Array,
        buffer: Buffer,
        unwanted: Callable[[], bool],
    ) -> tuple[_Loop, Array]:
        """The rollout of one group: what its device keeps, and the last values."""
        rows = self._rows[group]
        obs, first = buffer.seen(0, rows)
        loop = self._begin(keys_B[rows], self._carries[group], params, obs_stats, obs, first)
        for t in range(self._length):
            if unwanted():
                raise Cancelled
            started = time.perf_counter()
            loop, action = self._step(loop, params, obs_stats, obs, first)
            action = np.asarray(action)
            self._inference_seconds[group] += time.perf_counter() - started
            self.env.send(group, action)
            step = self._watch.recv(group)
            buffer.write(t + 1, rows, step)
            obs, first = buffer.seen(t + 1, rows)
        return loop, self._last_value(loop, params, obs_stats, obs, first)

    def overdue(self) -> str | None:
        """Which environments have not answered in time, for another thread to ask; None if all is well."""
        return self._watch.overdue()

    def waits(self) -> dict[str, float]:
        """Seconds spent waiting so far, by what for, on the average of the groups."""
        inference = sum(self._inference_seconds) / len(self._inference_seconds)
        return {"environments": self._watch.seconds, "inference": inference}

    def _next_buffer(self) -> Buffer:
        """A new buffer, whose row 0 is the row that followed the rollout before.

        Always a new one: on CPU a trajectory reads the arrays in place, and the learner may still need it.
        """
        if self._buffer is not None and self._is_fresh:
            self._is_fresh = False
            return self._buffer
        if self._buffer is None:
            steps = [self._watch.recv(g) for g in range(len(self._rows))]
            buffer = Buffer.like(steps[0].obs, self._length, self.env.num_envs)
            for rows, step in zip(self._rows, steps, strict=True):
                buffer.write(0, rows, step)
        else:
            buffer = self._buffer.successor()
        self._buffer = buffer
        return buffer

    def _trajectory(self, buffer: Buffer, chosen: list[Chosen], last_values: list[Array]) -> Trajectory:
        length = self._length
        host: dict[str, Any] = {
            "obs": jax.tree.map(lambda x: x[:length], buffer.obs),
            "reset": buffer.first[:length],
            "reward": buffer.reward,
            "terminated": buffer.terminated,
            "truncated": buffer.truncated,
            "valid": ~buffer.first[1:],
        }
        cut = buffer.truncated & ~buffer.terminated
        return Trajectory(**host, **self._finish(chosen, last_values, cut), action_mask=None)

    def _on_device(self, trajectory: Trajectory, totals: np.ndarray) -> tuple[Trajectory, EpisodeTotals]:
        trajectory = jax.device_put(trajectory, self.device)
        trajectory = dataclasses.replace(trajectory, obs=self._decode(trajectory.obs))
        return trajectory, EpisodeTotals(*map(jnp.float32, totals))


@dataclass(frozen=True)
class Programs:
    """The compiled parts of a rollout; N environments of one group each."""

    policy: Policy
    decode: Callable[[PyTree], PyTree]
    length: int
    chunk: int
    clip_obs: float

    def noise(self, keys_N: Array) -> Array:
        """[T, N, ...] for the actions: that of the device runtime with the same keys."""
        head = self.policy.head
        _, noise_keys_N = jax.vmap(jax.random.split, out_axes=1)(keys_N)
        draw = lambda key: draw_noise(head.noise_kind, key, (self.length, *head.noise_shape))  # noqa: E731
        noise: Array = jax.vmap(draw, out_axes=1)(noise_keys_N)
        return noise

    def begin(
        self, keys_N: Array, carry: PyTree, params: PyTree, obs_stats: PyTree, obs: PyTree, first: Array
    ) -> _Loop:
        """The state before row 0."""
        length, noise = self.length, self.noise(keys_N)

        def rows(x: Array, count: int) -> Array:
            return jnp.zeros((count, *x.shape), x.dtype)

        # Only shapes and dtypes of these are used.
        out = self.act(carry, params, obs_stats, obs, first)
        action = out.distribution.sample(noise[0])
        return _Loop(
            t=jnp.zeros((), jnp.int32),
            carry=jax.tree.map(jnp.copy, carry),
            noise=noise,
            chosen=Chosen(
                action=rows(action, length),
                log_prob=rows(out.value, length),
                value=rows(out.value, length),
                carries=jax.tree.map(lambda x: rows(x, length // self.chunk), carry),
            ),
        )

    def step(
        self, loop: _Loop, params: PyTree, obs_stats: PyTree, obs: PyTree, first: Array
    ) -> tuple[_Loop, Array]:
        """Consumes one row; returns the actions for the environments."""
        t, chosen = loop.t, loop.chosen
        out = self.act(loop.carry, params, obs_stats, obs, first)
        action = out.distribution.sample(loop.noise[t])

        def keep(kept: Array, x: Array) -> Array:
            return kept.at[t // self.chunk].set(jnp.where(t % self.chunk == 0, x, kept[t // self.chunk]))

        chosen = Chosen(
            action=chosen.action.at[t].set(action),
            log_prob=chosen.log_prob.at[t].set(out.distribution.log_prob(action)),
            value=chosen.value.at[t].set(out.value),
            carries=jax.tree.map(keep, chosen.carries, loop.carry),
        )
        after = dataclasses.replace(loop, t=t + 1, carry=out.carry, chosen=chosen)
        return after, self.policy.head.to_env(action)

    def last_value(self, loop: _Loop, params: PyTree, obs_stats: PyTree, obs: PyTree, first: Array) -> Array:
        """float32[N]: V of the observation after the rollout; the carry stays before it."""
        value: Array = self.act(loop.carry, params, obs_stats, obs, first).value
        return value

    def finish(self, groups: list[Chosen], last_values: list[Array], cut_TB: Array) -> dict[str, Any]:
        """The fields of a `Trajectory` that the policy makes, groups joined; `cut_TB`: only truncated."""

        def join(*parts: Array) -> Array:
            return jnp.concatenate(parts, axis=1)

        value = join(*(chosen.value for chosen in groups))
        last_value = jnp.concatenate(last_values)
        following = jnp.concatenate([value[1:], last_value[None]])
        return {
            "action": join(*(chosen.action for chosen in groups)),
            "log_prob": join(*(chosen.log_prob for chosen in groups)),
            "value": value,
            # The row after a truncation is the final observation, consumed with the live carry.
            "bootstrap_value": jnp.where(cut_TB, following, 0.0),
            "carry": jax.tree.map(join, *(chosen.carries for chosen in groups)),
            "last_value": last_value,
        }

    def act(self, carry: PyTree, params: PyTree, obs_stats: PyTree, obs: PyTree, first: Array) -> Any:
        seen = normalizer.normalize(obs_stats, self.decode(obs), self.clip_obs)
        return self.policy.step(params, seen, carry, first, None)
