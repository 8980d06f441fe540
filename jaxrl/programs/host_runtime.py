"""Training on host environments: an actor thread collects rollouts, the devices learn from them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import algorithms
from jaxrl.algorithms.suitable_networks import network_on
from jaxrl.config import Config, ConfigError
from jaxrl.envs import registry
from jaxrl.envs.base import has_large_images
from jaxrl.envs.host_env import HostEnv, HostFactory, HostOptions
from jaxrl.experience import curriculum, memory
from jaxrl.experience.collector import HostCollector, HostCollectorOptions
from jaxrl.experience.host.fused_collector import FusedCollector
from jaxrl.experience.host.stepped_collector import SteppedCollector
from jaxrl.experience.host.threads import Actor, Cancelled
from jaxrl.experience.statistics import EpisodeReports, no_totals
from jaxrl.experience.tasks import TASK_KEY
from jaxrl.metrics.clock import Clock
from jaxrl.metrics.reduction import Interval
from jaxrl.metrics.tracing import host_phase
from jaxrl.parallel.compilation import compile_in_turn, without_cache
from jaxrl.parallel.sharding import Topology, one_copy
from jaxrl.programs import host_start
from jaxrl.programs.learning import Learning
from jaxrl.programs.runtime import Runtime
from jaxrl.programs.sharded_learning import ShardedLearning
from jaxrl.types import (
    Acting,
    Array,
    Axis,
    BehaviourPolicy,
    EpisodeTotals,
    LearnerState,
    PyTree,
    TrainState,
    Trajectory,
)


class HostRuntime(Runtime):
    """See `Runtime`.

    Environments are started with the first rollout, and again with the first one after `close`: at the
    beginning of an episode, with seeds that follow from the state's key and iteration. `TrainState` holds
    nothing of them: their episodes cannot be continued by another process.
    """

    one_program = False

    def __init__(
        self, config: Config, topology: Topology, clock: Clock, given_up: Callable[[], bool]
    ) -> None:
        """Builds and checks everything; `given_up` says if a signal ends the wait for environments.

        Raises:
          ConfigError: the environments of a process cannot be divided into groups.
        """
        factory: HostFactory = registry.make_host(config.env.name, config.env.wrappers)
        self._factory = factory
        self.spec = factory.spec
        self.agent = algorithms.build_agent(
            network_on(config, topology.axis, topology.own_device), factory.spec
        )
        algorithm = algorithms.build(config, self.agent, topology.axis)
        self._collects = algorithm.collecting_agent
        self._reports = EpisodeReports.of(factory.spec, config.env.success)
        held = memory.build(algorithm.memory)
        self._tasks = sampler = curriculum.build(config, factory, self._reports)
        learning = Learning(config, algorithm, held, topology.axis, self._reports, self._tasks)
        self.learning = ShardedLearning(learning, self._init, topology)
        self._config = config
        self._topology = topology
        self._clock = clock
        self._given_up = given_up
        # Of rows; an environment of several agents starts with the numbers of its first.
        self._index = topology.local_rows(config.rows_per_device)
        self._environments = self._index[:: factory.spec.num_agents]
        if len(self._environments) % config.host.num_groups:
            raise ConfigError(
                f"`host.num_groups` (={config.host.num_groups}) must divide the {len(self._environments)} "
                f"environments of a process, of `env.num_envs` (={config.env.num_envs})"
            )
        self._decode = jax.jit(lambda obs: (factory.decode(obs), factory.action_mask(obs)))
        self._action_keys = jax.jit(host_start.action_keys)
        self._start_numbers = jax.jit(
            lambda key, iteration, index: host_start.start_numbers(factory.spec, key, iteration, index)
        )
        self._exploration = jax.jit(algorithm.exploration)
        self._actor: Actor | None = None
        self._collector: HostCollector | None = None
        overlap = config.host.overlap
        pays = topology.axis.platform != "cpu" and "host.overlap" in algorithm.offers
        self._overlap = (pays and self._tasks is None) if overlap is None else overlap
        if self._overlap and self._tasks is not None:
            raise ConfigError(
                "`host.overlap` (=True) must be False with `curriculum`: the stage of a rollout follows from "
                "the one before"
            )
        self._deal: Callable[..., PyTree] | None = None
        if sampler is not None:
            self._deal = jax.jit(partial(host_start.deal_tasks, sampler, length=config.rollout_length))
        self._copy = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))
        self._latest: Trajectory | None = None
        self._behaviour: BehaviourPolicy | None = None  # with overlap, of the rollout that comes next
        self._waited = 0.0
        self._measured_at = clock.total()
        self._measured: dict[str, float] = {}

    def trace(self) -> Any:
        example = jax.eval_shape(
            lambda: host_start.example_rollout(
                self._config, self._collects, self.spec, self._reports, self._overlap, sampler=self._tasks
            )
        )
        rollout = self._topology.abstract(example, self.learning.rollout_specs)
        return self.learning.trace(self._learn, self.learning.rollout_specs, *rollout)

    def compile(self) -> None:
        self.compiled = compile_in_turn(lambda: self.trace().lower())

    def prepare(self, state: TrainState) -> TrainState:
        """Starts the environments, unless they run or a signal stops that; returns `state` as it is."""
        if self._actor is not None:
            return state
        key = jax.random.wrap_key_data(jnp.array(jax.random.key_data(one_copy(state.key))))
        collector = self._collector = self._start(key, int(state.iteration))
        self._waited = 0.0
        self._measured = {}
        self._measured_at = self._clock.total()
        keys_of = lambda iteration: self._action_keys(key, iteration, self._index)  # noqa: E731
        self._actor = Actor(collector, keys_of, self._overlap, self._given_up)
        try:
            self._actor.prepare(self._acting(state))
        except Cancelled:
            self.close()
        return state

    def advance(
        self, state: TrainState, interval: Interval, count: int
    ) -> tuple[TrainState, Interval, Array]:
        assert count == 1
        state, trajectory, totals = self.rollout(state)
        self._latest = trajectory
        return self.compiled(state, interval, trajectory, totals)

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
                iteration = int(state.iteration)
                tasks = self._deal_tasks(state, iteration)
                trajectory, totals = self._actor.rollout(iteration, self._acting(state), tasks)
            self._waited += time.perf_counter() - started
        except BaseException:
            self.close()
            raise
        if self._overlap:
            # The actor has begun the next rollout with this policy, whose arrays learning will donate.
            given = BehaviourPolicy(self._copy(state.learner.policy.obs_stats))
            trajectory = dataclasses.replace(trajectory, behaviour=self._behaviour or given)
            self._behaviour = given
        return state, trajectory, totals

    def failed_rollout(self, state: TrainState) -> Trajectory:
        """The latest: none was collected for the learner since."""
        assert self._latest is not None
        return self._latest

    def single_device_iteration(self, state: TrainState) -> tuple[Callable[..., PyTree], tuple[PyTree, ...]]:
        config = dataclasses.replace(self._config, device_count=1)
        algorithm = algorithms.build(config, self.agent, Axis())
        learning = Learning(
            config, algorithm, memory.build(algorithm.memory), Axis(), self._reports, self._tasks
        )
        return learning.update, (state, self.failed_rollout(state), no_totals(self._reports, 1))

    def time_shares(self) -> dict[str, float]:
        """Shares of the time since the last call, see docs/metrics.md."""
        if self._collector is None:
            return {}
        now = self._clock.total()
        seconds = max(now - self._measured_at, 1e-9)
        self._measured_at = now
        so_far = self._collector.waits() | {"rollout_wait": self._waited}
        since = {name: so_far[name] - self._measured.get(name, 0.0) for name in so_far}
        self._measured = so_far
        return {f"time/{name}": min(1.0, waited / seconds) for name, waited in since.items()}

    def close(self) -> None:
        if self._actor is not None:
            self._actor.close()
        self._behaviour = None
        self._actor = None  # the collector stays, for `time_shares`

    def _init(self, key: Array, hyperparams: PyTree) -> TrainState:
        # The second key starts environments if these are JAX code.
        params_key, tasks_key, run_key = jax.random.split(key, 3)

        def example(learner: LearnerState) -> Trajectory:
            return host_start.example_rollout(
                self._config,
                self._collects,
                self.spec,
                self._reports,
                self._overlap,
                per_device=True,
                sampler=self._tasks,
            )[0]

        state = self.learning.per_device.init(params_key, run_key, hyperparams, None, example)
        if self._tasks is None:
            return state
        return dataclasses.replace(state, tasks=self._tasks.init(jax.random.fold_in(tasks_key, TASK_KEY)))

    def _deal_tasks(self, state: TrainState, iteration: int) -> PyTree:
        """Tasks [T, B, ...] of the episodes that begin in the rollout of an iteration, on the host."""
        if self._deal is None:
            return None
        key = jax.random.wrap_key_data(jnp.array(jax.random.key_data(one_copy(state.key))))
        keys_B = self._action_keys(key, iteration, self._index)
        return jax.device_get(self._deal(one_copy(state.tasks), keys_B))

    def _acting(self, state: TrainState) -> Acting:
        """The agent that collects, on the first device of this process."""
        learner = one_copy(state.learner)
        return dataclasses.replace(learner.policy, exploration=self._exploration(learner))

    def _learn(
        self, state: TrainState, interval: Interval, trajectory: Trajectory, totals: EpisodeTotals
    ) -> tuple[TrainState, Interval, Array]:
        return self.learning.per_device.learn(state, state, interval, trajectory, totals)

    def _start(self, key: Array, iteration: int) -> HostCollector:
        """Starts the environments, each at the beginning of an episode, and what collects from them."""
        config = self._config
        host = self._config.host
        seeds, cuts = self._start_numbers(key, iteration, self._environments)
        staggered = config.env.stagger and (self.spec.max_episode_steps or 0) > 1
        env = self._factory.start(
            HostOptions(
                seeds=tuple(map(int, seeds)),
                num_groups=host.num_groups,
                num_workers=host.num_workers,
                timeout=host.timeout,
                first_episode_steps=tuple(map(int, cuts)) if staggered else None,
                info_keys=self._reports.info_keys,
                task_names=() if self._tasks is None else self._task_names(),
            )
        )
        options = HostCollectorOptions(
            length=config.rollout_length,
            chunk=config.sequence_length,
            staggered=staggered,
            device=self._topology.local_devices[0],
            reports=self._reports,
            index=tuple(map(int, self._index)),
            place=self._place,
            tasks=self._tasks,
        )
        stepped = SteppedCollector(self._collects, env, options)
        traced = env.traced() if self._fuses(env) else None
        return stepped if traced is None else FusedCollector(stepped, traced, options, without_cache)

    def _task_names(self) -> tuple[str, ...]:
        """The numbers of a task that the environments get."""
        assert self._tasks is not None
        state = self._tasks.init(jax.random.key(0))
        task = self._tasks.choose(state, jax.random.split(jax.random.key(0), 1))
        return tuple(sorted(self._tasks.environment_task(task)))

    def _fuses(self, env: HostEnv) -> bool:
        """False if observations are large images: the policy then takes nearly all the time."""
        on_cpu = self._topology.local_devices[0].platform == "cpu"
        return self._config.host.fused and on_cpu and not has_large_images(env.spec.observation_space)

    def _place(self, trajectory: Trajectory, totals: EpisodeTotals) -> tuple[Trajectory, EpisodeTotals]:
        """On the devices, each with its environments; the totals count on the first."""
        count = len(self._topology.local_devices)
        rows = jax.tree.map(lambda x: np.append(x, np.zeros(count - 1, np.float32)), totals)

        def decode(part: tuple[Trajectory, EpisodeTotals]) -> tuple[Trajectory, EpisodeTotals]:
            obs, mask = self._decode(part[0].obs)
            next_obs, _ = self._decode(part[0].next_obs)
            return dataclasses.replace(part[0], obs=obs, action_mask=mask, next_obs=next_obs), part[1]

        both = (trajectory, rows)
        return self._topology.distribute(both, self.learning.rollout_specs, decode)
