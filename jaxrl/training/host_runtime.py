"""Training on host environments: an actor thread collects rollouts, the devices learn from them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from envs import registry
from envs.base import HostFactory, HostOptions, has_large_images
from jaxrl import networks
from jaxrl.config import Config, ConfigError
from jaxrl.metrics.clock import Clock
from jaxrl.metrics.tracing import host_phase
from jaxrl.parallel.coordination import Agreement
from jaxrl.parallel.sharding import SHARDED, TRAJECTORY_SPECS, Topology, one_copy
from jaxrl.rollout.device import EpisodeTotals
from jaxrl.rollout.host.actor import Actor
from jaxrl.rollout.host.collector import HostRollout
from jaxrl.rollout.host.fused_collector import FusedRollout
from jaxrl.rollout.host.waiting import Cancelled
from jaxrl.training.host_program import HostProgram
from jaxrl.training.pipeline import Dispatch, Pipeline
from jaxrl.training.sharded_program import ShardedHostProgram
from jaxrl.types import TrainState, Trajectory


class HostRuntime(Pipeline):
    """See `Runtime` in `jaxrl.training.runtimes`.

    Environments are started with the first rollout, and again with the first one after `close`: at the
    beginning of an episode, with seeds that follow from the state's key and iteration.
    """

    def __init__(self, config: Config, topology: Topology, clock: Clock, agreement: Agreement) -> None:
        self.env: HostFactory = registry.make_host(config.env.name, config.env.wrappers)
        self.policy = networks.build(config.network, self.env.spec)
        program = HostProgram(config, self.policy, topology.axis, self.env.spec)
        self.program = ShardedHostProgram(program, topology)
        super().__init__(self.program.no_metrics(), clock, agreement)
        self._config, self._topology = config, topology
        self._index = topology.local_rows(config.envs_per_device)
        if len(self._index) % config.host.num_groups:
            raise ConfigError(
                f"`host.num_groups` (={config.host.num_groups}) must divide the {len(self._index)} "
                f"environments of a process, of `env.num_envs` (={config.env.num_envs})"
            )
        self._decode = jax.jit(self.env.decode)
        self._action_keys = jax.jit(program.action_keys)
        self._actor: Actor | None = None
        self._collector: HostRollout | None = None
        self._latest: Trajectory | None = None
        self._waited, self._measured_at = 0.0, self._clock.total()
        self._measured: dict[str, float] = {}

    def compile(self) -> None:
        self.learn = self.compiled = self.program.lower_learn().compile()

    def prepare(self, state: TrainState) -> TrainState:
        """Starts the environments, unless they run; what `state` holds of earlier episodes ends.

        Where that is given up, because of a signal, `state` is returned as it is.
        """
        if self._actor is not None:
            return state
        program, config = self.program.program, self._config
        key = jax.random.wrap_key_data(jnp.array(jax.random.key_data(one_copy(state.key))))
        seeds, cuts = jax.jit(program.start_numbers)(key, int(state.iteration), self._index)
        options = HostOptions(
            seeds=tuple(map(int, seeds)),
            num_groups=config.host.num_groups,
            num_workers=config.host.num_workers,
            timeout=config.host.timeout,
            first_episode_steps=tuple(map(int, cuts)) if program.staggered else None,
        )
        device = self._topology.local_devices[0]
        self._collector = (FusedRollout if self._fuses(device) else HostRollout)(
            self.policy,
            self.env.start(options),
            config.ppo.rollout_length,
            config.sequence_length,
            config.normalize.clip_observations,
            program.staggered,
            device,
            self._place,
        )
        self._waited, self._measured, self._measured_at = 0.0, {}, self._clock.total()
        keys_of = lambda iteration: self._action_keys(key, iteration, self._index)  # noqa: E731
        self._actor = Actor(self._collector, keys_of, config.host.overlap, self._agreement.gives_up)
        try:
            self._actor.prepare(*one_copy((state.params, state.obs_stats)))
        except Cancelled:
            self.close()
            return state
        zeros = np.zeros(len(self._index), np.float32)
        return dataclasses.replace(state, discounted_return=self._topology.distribute(zeros, SHARDED))

    def fits(self, iteration: int, target: int) -> int:
        return min(target, iteration + 1)

    def dispatch(
        self, state: TrainState, iteration: int, target: int, closes_row: bool
    ) -> tuple[TrainState, int]:
        with self._clock.measure("train"), jax.profiler.StepTraceAnnotation("dispatch", step_num=target):
            try:
                state, trajectory, totals = self.rollout(state)
            except Cancelled:
                return state, iteration
            self._latest = trajectory
            state, sums, failed = self.learn(state, self.sums, trajectory, totals)
            told = self._agreement.tell()
        self._in_flight.append(Dispatch(target, target - iteration, sums, failed, closes_row, told))
        self.sums = self._empty if closes_row else sums
        return state, target

    def finished(self, at_most: int) -> Iterator[Dispatch]:
        # A rollout after one that was not finite must not be learnt from. Waiting costs nothing: the one
        # after the next needs the parameters that are being learnt now.
        del at_most
        return super().finished(0)

    def rollout(self, state: TrainState) -> tuple[TrainState, Trajectory, EpisodeTotals]:
        """Waits for the rollout of the state's iteration; iterations must come one after the other.

        Raises:
          HostEnvError: an environment failed; everything is closed.
          Cancelled: it was given up; everything is closed.
        """
        try:
            state = self.prepare(state)
            if self._actor is None:
                raise Cancelled
            started = time.perf_counter()
            with host_phase("rollout"):
                found = self._actor.rollout(int(state.iteration), *one_copy((state.params, state.obs_stats)))
            self._waited += time.perf_counter() - started
        except BaseException:
            self.close()
            raise
        return state, *found

    def culprit(self, state: TrainState) -> Trajectory:
        del state
        assert self._latest is not None
        return self._latest

    def shares(self) -> dict[str, float]:
        """Shares of the time since the last call, see docs/metrics.md."""
        if self._collector is None:
            return {}
        now = self._clock.total()
        seconds, self._measured_at = max(now - self._measured_at, 1e-9), now
        so_far = self._collector.waits() | {"rollout_wait": self._waited}
        since = {name: so_far[name] - self._measured.get(name, 0.0) for name in so_far}
        self._measured = so_far
        return {f"time/{name}": min(1.0, waited / seconds) for name, waited in since.items()}

    def close(self) -> None:
        if self._actor is not None:
            self._actor.close()
        self._actor = None  # the collector stays, for `shares`

    def _fuses(self, device: jax.Device) -> bool:
        """Not where observations are large images: the policy then takes nearly all the time."""
        has_images = has_large_images(self.env.spec.observation_space)
        return self._config.host.fused and device.platform == "cpu" and not has_images

    def _place(self, trajectory: Trajectory, totals: np.ndarray) -> tuple[Trajectory, EpisodeTotals]:
        """On the devices, each of which gets its environments; the totals count on the first."""
        count = len(self._topology.local_devices)
        rows = np.concatenate([totals[:, None], np.zeros((len(totals), count - 1))], axis=1)

        def decoded(part: tuple[Trajectory, EpisodeTotals]) -> tuple[Trajectory, EpisodeTotals]:
            return dataclasses.replace(part[0], obs=self._decode(part[0].obs)), part[1]

        both = (trajectory, EpisodeTotals(*rows.astype(np.float32)))
        found: tuple[Trajectory, EpisodeTotals] = self._topology.distribute(
            both, (TRAJECTORY_SPECS, SHARDED), decoded
        )
        return found
