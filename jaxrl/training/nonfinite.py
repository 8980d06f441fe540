"""NaNs and infinities: their origin, from the iteration computed again under watch; and the way on."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify

from jaxrl.config import Config, ConfigError
from jaxrl.config.errors import RunError
from jaxrl.envs.spaces import Discrete, MultiDiscrete, Space, has_choice
from jaxrl.parallel.sharding import REPLICATED, to_host
from jaxrl.programs.runtime import Runtime
from jaxrl.training.checkpoints import RunCheckpoints
from jaxrl.training.progress import Progress
from jaxrl.training.start import find_start
from jaxrl.types import PyTree, TrainState, Trajectory

# Rollbacks to one checkpoint: what fails three times from there will fail again.
MAX_ROLLBACKS = 3
# Iterations in a row whose updates were all dropped (`nonfinite="skip"`): nothing is learnt any more.
MAX_IDLE_ITERATIONS = 100
log = logging.getLogger(__name__)


class NonFiniteError(RunError):
    """A NaN or an infinity appeared in training; the message says where first."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """The first value that was not finite.

    Attributes:
      iteration: counted from 1.
      quantity: such as `parameters`, `observation`, `reward`, `loss/value`, `layer output` or `gradient`.
      value: "nan" or "inf"; "nothing is allowed" in the action mask.
      place: where in the iteration, in words.
      layers: those whose output is not finite, in the order of computation; parameters, for a gradient.
      operation: the operation that made it, if that was looked for (`--debug`).
    """

    iteration: int
    quantity: str
    value: str
    place: str
    layers: tuple[str, ...] = ()
    operation: str | None = None

    def __str__(self) -> str:
        parts = [f"{self.value} in {self.quantity}, {self.place}"]
        if self.layers:
            parts.append(f"first layer: {self.layers[0]}")
        if self.operation:
            parts.append(f"operation: {self.operation}")
        return "; ".join(parts)


def diagnose(runtime: Runtime, state: TrainState, debug: bool = False) -> Finding:
    """Computes the iteration after `state` again and names the first quantity that is not finite.

    `debug` also finds the operation, which takes a separate compilation.
    """
    iteration = int(state.iteration) + 1
    trajectory = runtime.failed_rollout(state)
    found = next(_in_parameters(state), None)
    if found is None and trajectory is not None:
        found = _in_trajectory(trajectory, runtime.spec.action_space)
    if found is None or found.quantity == "policy output":
        losses = [name for name in runtime.learning.per_device.metrics if name.startswith("loss/")]
        sharded = runtime.learning
        inputs = (sharded.state_specs, sharded.rollout_specs[0])
        program = sharded.topology.shard(sharded.per_device.inspect, inputs, REPLICATED)
        found = next(_in_updates(jax.device_get(program(state, trajectory)), losses), found)
    found = found or _found("a sum", "inf", "beyond what float32 holds")
    operation = _operation(runtime, state) if debug else None
    place = f"{found.place} of iteration {iteration}"
    return dataclasses.replace(found, iteration=iteration, place=place, operation=operation)


_found = functools.partial(Finding, 0)  # before the iteration is known


def in_evaluation(samples: Mapping[str, np.ndarray], iteration: int) -> Finding | None:
    """The first of the evaluated returns, by names such as `eval/returns`, that are not finite."""
    for name, values in samples.items():
        wrong = np.flatnonzero(~np.isfinite(values))
        if wrong.size:
            place = f"in {wrong.size} of {len(values)} episodes of the evaluation after iteration {iteration}"
            return Finding(iteration, name, _kind(np.asarray(values)), place)
    return None


def _in_parameters(state: TrainState) -> Iterator[Finding]:
    for name, x in _leaves(state.learner.policy.params):
        if not np.isfinite(x).all():
            yield _found("parameters", _kind(x), "at the start", (name,))


def _in_trajectory(trajectory: Trajectory, space: Space) -> Finding | None:
    """The earliest time step; within one, observations come before outputs, and outputs before rewards."""
    length = len(trajectory.reward)
    groups: tuple[tuple[str, int, PyTree], ...] = (
        ("observation", 0, trajectory.obs),
        ("policy output", 0, trajectory.extras),
        ("reward", 0, trajectory.reward),
        ("value of the final observation", 0, trajectory.bootstrap),
        ("value of the next observation", length, jax.tree.map(lambda x: x[None], trajectory.last)),
    )
    found: list[tuple[int, int, Finding]] = []
    for order, (quantity, offset, tree) in enumerate(groups):
        for name, x in _leaves(tree):
            where = np.argwhere(~np.isfinite(x))
            if where.size:
                t, environment = where[0][:2]
                place = _at(offset + t, environment)
                layers = (name,) if name and quantity == "observation" else ()
                found.append((offset + int(t), order, _found(quantity, _kind(x[t]), place, layers)))
    if trajectory.action_mask is not None:
        assert isinstance(space, Discrete | MultiDiscrete)
        where = np.argwhere(~np.asarray(has_choice(space, to_host(trajectory.action_mask))))
        if where.size:
            place = _at(*where[0])
            found.append((int(where[0][0]), 0, _found("the action mask", "nothing is allowed", place)))
    return min(found, key=lambda each: each[:2])[2] if found else None


def _at(time_step: int, environment: int) -> str:
    return f"time step {time_step} of environment {environment}, in the rollout"


def _in_updates(reports: Mapping[str, np.ndarray], losses: Sequence[str]) -> Iterator[Finding]:
    """Update by update: layers' outputs, then losses, then gradients; reports are [epochs, minibatches]."""
    epochs, minibatches = reports["grad/norm"].shape
    outputs = sorted(name for name in reports if name.startswith("output/"))
    gradients = sorted(name for name in reports if name.startswith("gradient/"))
    for epoch, minibatch in np.ndindex(epochs, minibatches):
        at = {name: x[epoch, minibatch] for name, x in reports.items()}
        place = f"epoch {epoch + 1}, minibatch {minibatch + 1}"
        layers = tuple(name.split("/", 2)[2] for name in outputs if at[name])
        parameters = tuple(name.split("/", 1)[1] for name in gradients if at[name])
        wrong = [name for name in losses if not np.isfinite(at[name])]
        if layers:
            yield _found("layer output", "nan or inf", place, layers)
        elif wrong:
            yield _found(wrong[0], _kind(at[wrong[0]]), place)
        elif parameters or not np.isfinite(at["grad/norm"]):
            yield _found("gradient", _kind(at["grad/norm"]), place, parameters)


def _operation(runtime: Runtime, state: TrainState) -> str | None:
    """The operation, found by checking every one; on one device, whatever the program runs on."""
    iterate, arguments = runtime.single_device_iteration(runtime.learning.whole(state))
    checked = jax.jit(checkify.checkify(iterate, errors=checkify.float_checks))
    error, _ = checked(*runtime.learning.topology.on_one_device(arguments))
    message = error.get()
    return " ".join(message.split()) if message else None


def _leaves(tree: PyTree) -> Iterator[tuple[str, np.ndarray]]:
    """(path, host copy) of the floating-point leaves."""
    for path, x in jax.tree_util.tree_leaves_with_path(tree):
        if jnp.issubdtype(x.dtype, jnp.floating):
            yield jax.tree_util.keystr(path, simple=True, separator="/"), np.asarray(to_host(x), np.float32)


def _kind(x: np.ndarray) -> str:
    return "nan" if np.isnan(x).any() else "inf"


class Recovery:
    """Goes back to a checkpoint, or says what is wrong and gives up."""

    def __init__(self, runtime: Runtime, checkpoints: RunCheckpoints, debug: bool) -> None:
        self._config: Config = checkpoints.config
        self._runtime = runtime
        self._checkpoints = checkpoints
        self._debug = debug
        self._rollbacks = 0
        self._updated_at = 0  # iteration
        self._updates = 0.0

    @property
    def halts(self) -> bool:
        """True if the next NaN ends the run."""
        return self._config.nonfinite == "halt" or self._rollbacks == MAX_ROLLBACKS

    def note_checkpoint(self) -> None:
        """Notes that there is a newer state to go back to."""
        self._rollbacks = 0

    def roll_back(self, cause: str) -> tuple[TrainState, Progress]:
        """Returns the state and progress of the newest checkpoint, or of the start, with another random key.

        `cause` is the value that was not finite, for people.
        """
        self._rollbacks += 1
        self._runtime.close()
        found = find_start(self._checkpoints)
        progress = found.progress
        state = found.state or self._runtime.learning.initial_state()
        key = jax.random.fold_in(state.key, self._rollbacks)
        state = dataclasses.replace(state, key=self._runtime.learning.topology.replicate(key))
        log.warning(
            "%s: back to step %d, with other random numbers (%d of %d)",
            cause,
            progress.iteration * self._config.steps_per_iteration,
            self._rollbacks,
            MAX_ROLLBACKS,
        )
        return state, progress

    def note_row(self, iteration: int, row: Mapping[str, float]) -> None:
        """Remembers the iteration of the latest row with new updates, if updates may be dropped."""
        if self._config.nonfinite != "skip":
            return
        updates = row[self._runtime.learning.algorithm.updates_metric]
        if updates > self._updates:
            self._updated_at = iteration
            self._updates = updates

    def has_stalled(self, iteration: int) -> bool:
        """True if all updates have been dropped for too long."""
        return self._config.nonfinite == "skip" and iteration - self._updated_at >= MAX_IDLE_ITERATIONS

    def give_up(self, state: TrainState, finding: Finding | None = None) -> NoReturn:
        """Reports the first value that is not finite, which None looks for, and raises NonFiniteError.

        `state` is the one before the iteration in which it appeared.
        """
        finding = finding or diagnose(self._runtime, state, self._debug)
        self._checkpoints.finish()
        try:
            self._checkpoints.write_report("nonfinite", dataclasses.asdict(finding))
        except ConfigError as error:
            log.warning("there is no report: %s", error)
        raise NonFiniteError(str(finding))
