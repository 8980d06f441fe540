"""Where a NaN or an infinity came from: the iteration is computed again, with everything watched."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify

from jaxrl.algorithms.ppo.update import Updater
from jaxrl.config.errors import RunError
from jaxrl.parallel.sharding import REPLICATED, STATE_SPECS, TRAJECTORY_SPECS, to_host
from jaxrl.rollout.device import EpisodeTotals
from jaxrl.training.iteration import Program
from jaxrl.training.sharded_program import Sharded
from jaxrl.types import Axis, PyTree, TrainState, Trajectory

_LOSSES = ("loss/policy", "loss/value", "loss/entropy")


class NonFiniteError(RunError):
    """A NaN or an infinity appeared in training; the message says where first."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """The first value that was not finite.

    Attributes:
      iteration: counted from 1.
      quantity: such as `parameters`, `observation`, `reward`, `loss/value`, `layer output` or `gradient`.
      value: "nan" or "inf".
      place: where in the iteration, in words.
      layers: those whose output is not finite, in the order of computation; parameters, for a gradient.
      operation: the operation that made it, where that was looked for (`--debug`).
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


def diagnose(program: Sharded, state: TrainState, trajectory: Trajectory, debug: bool = False) -> Finding:
    """Computes the updates of the next iteration again and names what is the first not to be finite.

    Args:
      program: what trains.
      state: the state before that iteration; not donated.
      trajectory: the iteration's rollout.
      debug: also finds the operation. That takes a compilation of its own.
    """
    iteration = int(state.iteration) + 1
    found = next(_in_parameters(state), None) or _in_trajectory(trajectory)
    if found is None or found[0] == "policy output":
        found = next(_in_updates(_watch_updates(program, state, trajectory)), found)
    quantity, value, place, layers = found or ("a sum", "inf", "beyond what float32 holds", ())
    operation = _operation(program, state, trajectory) if debug else None
    return Finding(iteration, quantity, value, f"{place} of iteration {iteration}", layers, operation)


_Found = tuple[str, str, str, tuple[str, ...]]


def _in_parameters(state: TrainState) -> Iterator[_Found]:
    for name, x in _leaves(state.params):
        if not np.isfinite(x).all():
            yield "parameters", _kind(x), "at the start", (name,)


def _in_trajectory(trajectory: Trajectory) -> _Found | None:
    """The earliest time step; within one, observations come before outputs, and outputs before rewards."""
    length = len(trajectory.reward)
    groups: tuple[tuple[str, int, PyTree], ...] = (
        ("observation", 0, trajectory.obs),
        ("policy output", 0, (trajectory.log_prob, trajectory.value)),
        ("reward", 0, trajectory.reward),
        ("value of the final observation", 0, trajectory.bootstrap_value),
        ("value of the next observation", length, trajectory.last_value[None]),
    )
    found: list[tuple[int, int, _Found]] = []
    for order, (quantity, offset, tree) in enumerate(groups):
        for name, x in _leaves(tree):
            where = np.argwhere(~np.isfinite(x))
            if where.size:
                t, environment = where[0][:2]
                place = f"time step {offset + t} of environment {environment}, in the rollout"
                layers = (name,) if name and quantity == "observation" else ()
                found.append((offset + int(t), order, (quantity, _kind(x[t]), place, layers)))
    return min(found)[2] if found else None


def _watch_updates(program: Sharded, state: TrainState, trajectory: Trajectory) -> dict[str, np.ndarray]:
    """What each update reports, [epochs, minibatches]."""
    single = program.program
    updater = Updater(single.config, single.policy, single.axis, watch=True)

    def updates(state: TrainState, trajectory: Trajectory) -> PyTree:
        _, arguments, _ = single.prepare(state, trajectory)
        return updater.each(*arguments)[-1]

    watched = program.topology.shard(updates, (STATE_SPECS, TRAJECTORY_SPECS), REPLICATED)
    return jax.device_get(watched(state, trajectory))


def _in_updates(reports: Mapping[str, np.ndarray]) -> Iterator[_Found]:
    """Update by update: layers' outputs, then losses, then gradients."""
    epochs, minibatches = reports["grad/norm"].shape
    outputs = sorted(name for name in reports if name.startswith("output/"))
    gradients = sorted(name for name in reports if name.startswith("gradient/"))
    for epoch, minibatch in np.ndindex(epochs, minibatches):
        at = {name: x[epoch, minibatch] for name, x in reports.items()}
        place = f"epoch {epoch + 1}, minibatch {minibatch + 1}"
        layers = tuple(name.split("/", 2)[2] for name in outputs if at[name])
        parameters = tuple(name.split("/", 1)[1] for name in gradients if at[name])
        losses = [name for name in _LOSSES if not np.isfinite(at[name])]
        if layers:
            yield "layer output", "nan or inf", place, layers
        elif losses:
            yield losses[0], _kind(at[losses[0]]), place, ()
        elif parameters or not np.isfinite(at["grad/norm"]):
            yield "gradient", _kind(at["grad/norm"]), place, parameters


def _operation(program: Sharded, state: TrainState, trajectory: Trajectory) -> str | None:
    """The operation, found by checking every one; on one device, whatever the program runs on."""
    config = dataclasses.replace(program.program.config, device_count=1)
    single = dataclasses.replace(program.program, config=config, axis=Axis())
    no_episodes = EpisodeTotals(*jnp.zeros(3))

    def iterate(state: TrainState, trajectory: Trajectory) -> PyTree:
        if isinstance(single, Program):  # the operation may be one of the environment
            return single.iterate(state)
        return single.update(state, trajectory, no_episodes)

    checked = jax.jit(checkify.checkify(iterate, errors=checkify.float_checks))
    error, _ = checked(*program.topology.on_one_device((state, trajectory)))
    message = error.get()
    return " ".join(message.split()) if message else None


def _leaves(tree: PyTree) -> Iterator[tuple[str, np.ndarray]]:
    """(path, host copy) of the floating-point leaves."""
    for path, x in jax.tree_util.tree_leaves_with_path(tree):
        if jnp.issubdtype(x.dtype, jnp.floating):
            yield jax.tree_util.keystr(path, simple=True, separator="/"), np.asarray(to_host(x), np.float32)


def _kind(x: np.ndarray) -> str:
    return "nan" if np.isnan(x).any() else "inf"
