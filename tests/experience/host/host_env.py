"""A host environment for tests that plays back what a device environment did, and breaks on request."""

from __future__ import annotations

import dataclasses
import functools
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from jaxrl.envs.base import EnvSpec
from jaxrl.envs.host_env import HostEnv, HostEnvError, HostOptions, HostStep, TracedSteps, group_rows
from jaxrl.types import TrainState
from tests.compiled_programs import Program, rollout_keys


def record(program: Program, state: TrainState, length: int) -> dict[str, np.ndarray]:
    """The steps of a device program's environments in its first rollout, whatever the actions.

    Arrays of [length, B]: obs (before the step), final_obs (after it), reward, terminated, truncated.
    """
    env = program.env
    step_keys_B, _ = jax.vmap(jax.random.split, out_axes=1)(rollout_keys(program, state))

    def step(loop: Any, t: jax.Array) -> Any:
        env_state, obs = loop
        keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(step_keys_B, t)
        env_state, timestep = env.step(keys, env_state, jax.numpy.zeros(obs.shape[0], int))
        names = ("final_obs", "reward", "terminated", "truncated")
        return (env_state, timestep.obs), {"obs": obs} | {name: getattr(timestep, name) for name in names}

    scan = jax.jit(lambda start: jax.lax.scan(step, start, jax.numpy.arange(length))[1])
    return jax.tree.map(np.asarray, scan((state.collector.env_state, state.collector.obs)))


class Playback(HostEnv):
    """Shows recorded transitions with reset on the next step, and keeps the actions it was sent.

    Args:
      game_over: bool[length, B], ends of the games; by default every end.
      fail: "raise" or "hang" at the step `fail_at`.
    """

    def __init__(
        self,
        spec: EnvSpec,
        recorded: dict[str, np.ndarray],
        num_groups: int = 1,
        game_over: np.ndarray | None = None,
        fail: str = "",
        fail_at: int = 5,
    ):
        self.spec, self._recorded = spec, recorded
        self.num_envs, self.num_groups, self.timeout = recorded["reward"].shape[1], num_groups, 0.3
        done = recorded["terminated"] | recorded["truncated"]
        self._game_over = done if game_over is None else game_over
        self._row = np.zeros(self.num_envs, int)  # the transition that comes next
        self._ended = np.zeros(self.num_envs, bool)
        self._started = [False] * num_groups
        self._fail, self._fail_at = fail, fail_at
        self._interrupted = threading.Event()
        self.actions: list[list[np.ndarray]] = [[] for _ in range(num_groups)]
        self.closed = False

    def send(self, group: int, action: np.ndarray) -> None:
        self.actions[group].append(np.array(action))

    def recv(self, group: int) -> HostStep:
        if len(self.actions[group]) == self._fail_at and self._fail == "raise":
            raise HostEnvError(f"{self.spec.name}, environment 2, step {self._fail_at}: broke")
        if len(self.actions[group]) == self._fail_at and self._fail == "hang":
            self._interrupted.wait()
            raise HostEnvError("interrupted")
        steps = [self._step(b) for b in range(self.num_envs)[group_rows(self, group)]]
        self._started[group] = True
        return HostStep(*(np.stack(x) for x in zip(*steps, strict=True)))

    def _step(self, b: int) -> tuple[Any, ...]:
        size = self.num_envs // self.num_groups
        row = self._row[b]
        get = {name: x[row, b] for name, x in self._recorded.items()}
        if self._ended[b] or not self._started[b // size]:
            self._ended[b] = False
            # Numbers that would be noticed if anything in this row but the observation counted.
            return get["obs"], np.float32(0), False, False, True, np.float32(1e6), True
        self._ended[b] = get["terminated"] or get["truncated"]
        self._row[b] += 1
        over = self._game_over[row, b]
        return (
            get["final_obs"],
            get["reward"],
            get["terminated"],
            get["truncated"],
            False,
            get["reward"],
            over,
        )

    def decode(self, obs: Any) -> Any:
        return obs

    def interrupt(self) -> None:
        self._interrupted.set()

    def close(self) -> None:
        self.closed = True


class TracedPlayback(Playback, TracedSteps):
    """A `Playback` that programs can step, too, through callbacks."""

    @property
    def is_ready(self) -> bool:
        return True

    def traced(self) -> TracedSteps:
        self.handles = [np.zeros(8, np.uint8) for _ in range(self.num_groups)]
        return self

    def send(self, group: int, *arguments: Any) -> Any:
        if len(arguments) == 1:
            return super().send(group, *arguments)
        handle, action = arguments

        def call(handle: np.ndarray, action: np.ndarray) -> np.ndarray:
            Playback.send(self, group, action)
            return handle

        return io_callback(call, handle, handle, action)

    def recv(self, group: int, *arguments: Any) -> Any:
        if not arguments:
            return super().recv(group)
        handle, first = arguments
        size = (self.num_envs // self.num_groups,)
        flags, numbers = jax.ShapeDtypeStruct(size, bool), jax.ShapeDtypeStruct(size, np.float32)
        obs = jax.ShapeDtypeStruct((*size, *self._recorded["obs"].shape[2:]), np.float32)
        step = HostStep(obs, numbers, flags, flags, flags, numbers, flags)

        def call(handle: np.ndarray) -> Any:
            return handle, Playback.recv(self, group)

        handle, step = io_callback(call, (handle, step), handle)
        return handle, dataclasses.replace(step, first=first), jnp.isfinite(step.obs).all(axis=1)

    def stepped(self, reward: np.ndarray, finite: np.ndarray) -> None:
        """Breaks only when it is told to."""


class PlaybackFactory:
    """Starts a `Playback`; keeps the last one for tests to look at."""

    def __init__(self, spec: EnvSpec, recorded: dict[str, np.ndarray], **arguments: Any):
        self.spec = spec
        self._make = functools.partial(Playback, spec, recorded, **arguments)
        self.last: Playback | None = None

    def decode(self, obs: Any) -> Any:
        return obs

    def action_mask(self, obs: Any) -> None:
        """It has none."""

    def start(self, options: HostOptions) -> Playback:
        self.last = self._make(num_groups=options.num_groups)
        return self.last
