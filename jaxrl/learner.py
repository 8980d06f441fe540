"""The trainer: compiled programs over the devices, and the loop that drives them."""

from __future__ import annotations

import dataclasses
import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from envs import registry
from envs.vector import VectorEnv
from jaxrl import networks
from jaxrl.clock import Clock
from jaxrl.config import Config, largest_device_count, resolve, versions
from jaxrl.evaluation import Evaluator, Result
from jaxrl.iteration import Program, hyperparams_of
from jaxrl.metrics import Writer, console
from jaxrl.profiling import TraceWindow
from jaxrl.rollout.device import EpisodeTotals
from jaxrl.run_folder import RunFolder
from jaxrl.sharding import REPLICATED, STATE_SPECS, TRAJECTORY_SPECS, Axis, Topology
from jaxrl.types import Array, Hyperparams, TrainState, Trajectory

log = logging.getLogger(__name__)

# Programs queued on the devices at once: one runs while the metrics of the one before are read.
MAX_IN_FLIGHT = 2


def make_train(config: ConfigDict | Config) -> Callable[..., tuple[TrainState, dict[str, Array]]]:
    """Returns `train(key, hyperparams=None) -> (state, metrics)`, a pure function for one device.

    `train` runs the whole of `stop.steps` and may be jitted and vmapped: over keys for a batch of seeds,
    over `Hyperparams` for a sweep. Metrics are [iterations] arrays, explained in docs/metrics.md;
    `episode/return` and `episode/length` are NaN where no episode ended.

    Raises:
      ConfigError: a field is unknown, of the wrong type or out of range.
    """
    if isinstance(config, ConfigDict):
        config = resolve(config, 1)
    config = dataclasses.replace(config, device_count=1)
    env = registry.make(config.env.name, config.env.wrappers)
    program = Program.build(config, env, networks.build(config.network, env.spec), Axis())

    def train(key: Array, hyperparams: Hyperparams | None = None) -> tuple[TrainState, dict[str, Array]]:
        state = program.init(key, hyperparams or hyperparams_of(config))
        state, metrics = jax.lax.scan(
            lambda state, _: program.iterate(state), state, length=config.num_iterations
        )
        count = metrics["episode/count"]
        means = {name: metrics[name] / count for name in ("episode/return", "episode/length")}
        return state, metrics | means

    return train


class Trainer:
    """Trains one policy on all devices.

    `fit()` does everything. For a loop of your own:

        trainer = Trainer(config)
        for _ in range(trainer.config.num_iterations):
            trajectory = trainer.rollout()
            metrics = trainer.update(trajectory)
            trainer.log(metrics)

    Attributes:
      config: the resolved configuration.
      state: the `TrainState`; replaced, and its buffers donated, by every step.
      policy, env: what is trained, on what.
    """

    def __init__(
        self, config: ConfigDict | Config, folder: RunFolder | None = None, writer: Writer | None = None
    ):
        """Builds and checks everything; compiles nothing yet.

        Args:
          config: as from a config file, or already resolved.
          folder: where checkpoints go, and what to resume from; None keeps nothing.
          writer: receives the metrics; None prints them.

        Raises:
          ConfigError: the configuration is wrong.
        """
        if isinstance(config, ConfigDict):
            config = resolve(config, config.num_devices or largest_device_count(config, jax.device_count()))
        self.config = config
        self.folder = folder
        self._writer = writer
        self.clock = Clock()
        self.env = registry.make(config.env.name, config.env.wrappers)
        self.policy = networks.build(config.network, self.env.spec)
        self.topology = Topology.of(config.device_count)
        self.program = Program.build(config, self.env, self.policy, self.topology.axis)
        self._evaluator = Evaluator(self.policy, VectorEnv(self.env), self.topology, config)
        self._state: TrainState | None = None
        self._totals: EpisodeTotals | None = None
        self._compiled: dict[str, Any] = {}
        self.iteration = 0
        self.last_evaluation: Result | None = None
        self._evaluated_at = self._saved_at = -1
        self._resumed_steps = 0

    @property
    def state(self) -> TrainState:
        if self._state is None:
            self._state = self._initial_state()
        return self._state

    @property
    def writer(self) -> Writer:
        """Where metrics go; the display appears with the first use, not before."""
        if self._writer is None:
            self._writer = console(self.config)
        return self._writer

    @writer.setter
    def writer(self, writer: Writer) -> None:
        self._writer = writer

    @property
    def steps(self) -> int:
        """Environment steps taken."""
        return self.iteration * self.config.steps_per_iteration

    @property
    def progressed(self) -> bool:
        """Whether this process has trained, or only found the budget used up."""
        return self.steps > self._resumed_steps

    def rollout(self) -> Trajectory:
        """Steps the environments by one rollout and returns it, as global arrays [T, num_envs, ...]."""
        specs = (STATE_SPECS, TRAJECTORY_SPECS, REPLICATED)
        program = self._program("rollout", self.program.rollout, (STATE_SPECS,), specs)
        self._state, trajectory, self._totals = program(self.state)
        return trajectory

    def update(self, trajectory: Trajectory) -> dict[str, float]:
        """Runs all updates of one iteration on a trajectory of `rollout()`; returns its metrics."""
        if self._totals is None:
            raise RuntimeError("update() needs the trajectory of a rollout() before it")
        specs = (STATE_SPECS, TRAJECTORY_SPECS, REPLICATED)
        program = self._program("update", self.program.update, specs, (STATE_SPECS, REPLICATED))
        self._state, metrics = program(self.state, trajectory, self._totals)
        self._totals = None
        self.iteration += 1
        return _averages(jax.device_get(metrics), 1)

    def log(self, metrics: Mapping[str, float]) -> None:
        """Writes metrics at the current step."""
        self.writer.write(self.steps, {"steps": self.steps, **metrics})

    def evaluate(self, episodes: int | None = None, sample: bool = False) -> Result:
        """Plays whole episodes with the current policy and frozen normaliser."""
        key = jax.random.fold_in(jax.random.key(self.config.seed), self.iteration)
        state = self.state
        return self._evaluator(
            state.params, state.obs_stats, key, episodes or self.config.evaluate.episodes, sample
        )

    def fit(self) -> dict[str, Any]:
        """Trains until a budget is used up or the target return is reached; returns the summary.

        Resumes from the folder's latest checkpoint, unless `resume()` or steps of your own came before.
        """
        if self._state is None:
            self.resume()
        if (reason := self._stop_reason()) is not None and self.last_evaluation is not None:
            self.writer.status("nothing to do: the run has used up its budget")
            log.info("nothing to do at step %d: %s", self.steps, reason)
            return self._finish(reason)
        self._compile()
        trace = self._trace_window()
        in_flight: deque[tuple[int, int, dict[str, Array]]] = deque()
        while (reason := self._stop_reason()) is None:
            with self.clock.measure("train"):
                trace.step(self.iteration, self._state)
                target = self._next_event()
                count = target - self.iteration
                self._state, metrics = self._compiled["train"](self._state, jnp.int32(count))
                self.iteration = target
                in_flight.append((target, count, metrics))
            evaluate = self._due(self.config.evaluate_iterations)
            # The checkpoint of the final state comes after its evaluation, whenever that is due.
            final = self.iteration >= self.config.num_iterations
            save = self._due(self.config.checkpoint_iterations) and not final
            # The host reads old metrics while the devices work, and waits for them only at an event.
            while len(in_flight) >= (1 if evaluate or save else MAX_IN_FLIGHT):
                self._report(*in_flight.popleft())
            if evaluate:
                self._evaluate_and_report()
            if save:
                self._save()
        while in_flight:
            self._report(*in_flight.popleft())
        trace.close()
        return self._finish(reason)

    def _program(self, name: str, fn: Callable[..., Any], in_specs: Any, out_specs: Any) -> Any:
        if name not in self._compiled:
            self._compiled[name] = self.topology.shard(fn, in_specs, out_specs, donate=True)
        return self._compiled[name]

    def _initial_state(self) -> TrainState:
        init = self.topology.shard(self.program.init, (REPLICATED, REPLICATED), STATE_SPECS)
        return init(jax.random.key(self.config.seed), hyperparams_of(self.config))

    def _abstract_state(self) -> TrainState:
        init = self.topology.shard(self.program.init, (REPLICATED, REPLICATED), STATE_SPECS)
        shapes = jax.eval_shape(init, jax.random.key(0), hyperparams_of(self.config))
        return self.topology.abstract(shapes, STATE_SPECS)

    def resume(self) -> bool:
        """Takes up the folder's latest checkpoint; returns whether there is one.

        Raises:
          CheckpointError: it does not fit the configuration.
        """
        latest = self.folder.checkpoints.latest_step() if self.folder else None
        if latest is None:
            return False
        assert self.folder is not None
        self.writer.status(f"restoring the checkpoint of step {latest:,}")
        state, meta = self.folder.checkpoints.restore(latest, self._abstract_state())
        # The numbers of today's config hold, also where they differ from the stored ones.
        self._state = dataclasses.replace(
            state, hyperparams=self.topology.replicate(hyperparams_of(self.config))
        )
        self.iteration = self._saved_at = int(meta["iteration"])
        self._resumed_steps = self.steps
        if meta["evaluation"] is not None:
            self.last_evaluation, self._evaluated_at = Result(**meta["evaluation"]), self.iteration
        self.clock.carry_over(meta["seconds"])
        self.writer.resume_from(latest)
        log.info("resumed from the checkpoint of step %d", latest)
        return True

    def _compile(self) -> None:
        """Compiles training, evaluation and the initial state side by side; XLA compiles outside the GIL."""
        self.writer.status("compiling the training program")
        with self.clock.measure("compile"), ThreadPoolExecutor(max_workers=3) as pool:
            train = self.topology.shard(
                self.program.repeat, (STATE_SPECS, REPLICATED), (STATE_SPECS, REPLICATED), donate=True
            )
            abstract = self._abstract_state()
            lowered = train.lower(abstract, jax.ShapeDtypeStruct((), jnp.int32))
            training = pool.submit(lowered.compile)
            evaluation = pool.submit(
                self._evaluator.compile,
                abstract.params,
                abstract.obs_stats,
                self.config.evaluate.episodes,
            )
            self._state = self.state
            evaluation.result()
            self._compiled["train"] = training.result()
        log.info("compiled in %.1f s", self.clock.seconds("compile"))
        self.writer.status("training")

    def _trace_window(self) -> TraceWindow:
        profile = self.config.profile
        count = profile.num_iterations if self.folder is not None else 0
        folder = str(self.folder.path / "tensorboard") if self.folder is not None else ""
        return TraceWindow(folder, profile.start_iteration, count)

    def _due(self, every: int) -> bool:
        return every > 0 and self.iteration % every == 0

    def _next_event(self) -> int:
        """The iteration at which the host must look next."""
        config = self.config
        intervals = (config.log_iterations, config.evaluate_iterations, config.checkpoint_iterations)
        following = [(self.iteration // every + 1) * every for every in intervals if every > 0]
        return min([*following, config.num_iterations])

    def _stop_reason(self) -> str | None:
        stop = self.config.stop
        evaluation = self.last_evaluation
        if stop.target_return is not None and evaluation and evaluation.mean >= stop.target_return:
            return "return"
        if self.iteration >= self.config.num_iterations:
            return "steps"
        if stop.seconds is not None and self.clock.total() >= stop.seconds:
            return "seconds"
        return None

    def _report(self, iteration: int, count: int, metrics: dict[str, Array]) -> None:
        with self.clock.measure("train"):
            values = _averages(jax.device_get(metrics), count)
        config = self.config
        steps = iteration * config.steps_per_iteration
        rate = self.clock.rate("train", count * config.steps_per_iteration)
        row = {"steps": steps, **values, "time/steps_per_second": rate}
        self.writer.write(steps, row | self._seconds())

    def _evaluate_and_report(self) -> None:
        self.writer.status("evaluating")
        with self.clock.measure("evaluate"):
            result = self.evaluate()
        self.last_evaluation = result
        self._evaluated_at = self.iteration
        row = {"eval/return": result.mean, "eval/return_std": result.std, "eval/length": result.mean_length}
        self.writer.write(self.steps, row | self._seconds())
        self.writer.status("training")
        log.info(
            "step %d: greedy return %.2f (std %.2f) over %d episodes",
            self.steps,
            result.mean,
            result.std,
            result.episodes,
        )

    def _save(self) -> None:
        if self.folder is None:
            return
        with self.clock.measure("save"):
            evaluation = self.last_evaluation if self._evaluated_at == self.iteration else None
            score = evaluation.mean if evaluation else None
            meta = {
                "iteration": self.iteration,
                "seconds": self.clock.total(),
                "evaluation": dataclasses.asdict(evaluation) if evaluation else None,
            }
            self.folder.checkpoints.save(self.steps, self.state, meta, score)
        self._saved_at = self.iteration
        self.writer.write(self.steps, {"checkpoint/step": self.steps} | self._seconds())
        log.info("step %d: saved a checkpoint", self.steps)

    def _seconds(self) -> dict[str, float]:
        phases = ("compile", "train", "evaluate", "save")
        seconds = {f"time/{phase}_seconds": self.clock.seconds(phase) for phase in phases}
        return seconds | {"time/seconds": self.clock.total()}

    def _finish(self, reason: str) -> dict[str, Any]:
        """A last evaluation and checkpoint of the final state, where the schedule left none."""
        if self._evaluated_at != self.iteration:
            self._evaluate_and_report()
        if self._saved_at != self.iteration:
            self._save()
        if self.folder is not None:
            self.folder.checkpoints.wait()
        self.writer.flush()
        evaluation = self.last_evaluation
        assert evaluation is not None
        log.info("stopped at step %d: %s", self.steps, reason)
        trained = self.clock.seconds("train")
        return {
            "stop_reason": reason,
            "steps": self.steps,
            "seconds": round(self.clock.total(), 3),
            "compile_seconds": round(self.clock.seconds("compile"), 3),
            "steps_per_second": round((self.steps - self._resumed_steps) / trained) if trained else 0,
            "eval_return": evaluation.mean,
            "eval_return_std": evaluation.std,
            "eval_episodes": evaluation.episodes,
            "seed": self.config.seed,
            "environment": self.config.env.name,
            "device": self.topology.description,
            "versions": versions(),
        }


def _averages(sums: Mapping[str, np.ndarray], iterations: int) -> dict[str, float]:
    """From sums over iterations to what is logged; the means over episodes are absent when none ended."""
    values = {name: float(x) / iterations for name, x in sums.items() if not name.startswith("episode/")}
    values["ppo/updates"] = float(sums["ppo/updates"])
    count = float(sums["episode/count"])
    values["episode/count"] = count
    if count:
        values["episode/return"] = float(sums["episode/return"]) / count
        values["episode/length"] = float(sums["episode/length"]) / count
    return values
