"""The memories of learners from demonstrations: episodes in lanes, and the steps that DAgger gathers."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algorithms.demonstrations import (
    AggregateDraw,
    AggregatePlan,
    Demonstrated,
    DemonstrationDraw,
    DemonstrationPlan,
)
from jaxrl.algorithms.replay import SequencePlan
from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.envs.base import EnvSpec, zeros
from jaxrl.envs.numbering import counted_from_zero
from jaxrl.experience.demonstrations.dataset import DatasetFault, read_dataset
from jaxrl.experience.demonstrations.episode import Episode
from jaxrl.experience.memory import Memory
from jaxrl.experience.replay import draws, ring
from jaxrl.experience.replay.sampling import Places
from jaxrl.types import Array, Bulk, PyTree, Sharded, Trajectory


@flax.struct.dataclass
class DemonstrationRows:
    """Training and validation episodes of this device's lanes."""

    training: Annotated[Demonstrated, Sharded(1), Bulk()]
    validation: Annotated[Demonstrated, Sharded(1), Bulk()]


class Demonstrations(Memory):
    """Reads a folder of episodes once; every draw returns all of them.

    An algorithm shuffles: whole episodes stay in order, since sequences begin with the carry that acting
    would have. The rows are no part of checkpoints, since a resumed run reads the same files.
    """

    state_type: Any = DemonstrationRows
    checkpointed = False
    refills = True

    def __init__(self, plan: DemonstrationPlan) -> None:
        """Reads the episodes; ConfigError if one is damaged or of another environment, or they do not fit."""
        self._plan = plan
        given = f"`{plan.field}` (={plan.folder!r})"
        if not plan.folder:
            raise ConfigError(f"{given} must name a folder of episodes (jaxrl record, jaxrl prepare-data)")
        with errors_as(ConfigError, f"`{plan.field}`", DatasetFault):
            dataset = read_dataset(plan.folder, plan.spec)
        training, validation = dataset.split(plan.validation)
        needed = rows_needed([len(e) for e in training], plan.lanes)
        if needed > plan.rows:
            raise ConfigError(
                f"`{plan.rows_field}` (={plan.rows}) must be at least {needed}: so many rows do the "
                f"{len(training)} episodes of {plan.folder} take in {plan.lanes} lanes (`env.num_envs`)"
            )
        held = max(rows_needed([len(e) for e in validation], plan.lanes), 1)
        held = -(-held // plan.chunk) * plan.chunk
        self._training = lay_out(training, plan.spec, plan.lanes, plan.rows)
        self._validation = lay_out(validation, plan.spec, plan.lanes, held)

    def init(self, example: Trajectory | None) -> DemonstrationRows:
        return DemonstrationRows(self._own(self._training), self._own(self._validation))

    def add(self, state: DemonstrationRows, trajectory: Trajectory) -> DemonstrationRows:
        return state

    def draw(self, state: DemonstrationRows, latest: Trajectory | None, key: Array) -> DemonstrationDraw:
        return DemonstrationDraw(state.training, state.validation)

    def _own(self, all_lanes: Demonstrated) -> Demonstrated:
        """This device's lanes."""
        axis = self._plan.axis
        count = self._plan.lanes // axis.size

        def own(x: Any) -> Array:
            return jax.lax.dynamic_slice_in_dim(jnp.asarray(x), axis.index() * count, count, axis=1)

        return jax.tree.map(jnp.asarray if axis.size == 1 else own, all_lanes)


def assign(lengths: Sequence[int], lanes: int) -> list[list[int]]:
    """The episodes of each lane, by number: the longest first, each into the lane with most room."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    heap = [(0, lane) for lane in range(lanes)]
    found: list[list[int]] = [[] for _ in range(lanes)]
    for i in order:
        filled, lane = heapq.heappop(heap)
        found[lane].append(i)
        heapq.heappush(heap, (filled + lengths[i], lane))
    return found


def rows_needed(lengths: Sequence[int], lanes: int) -> int:
    """Rows of the fullest lane."""
    return max((sum(lengths[i] for i in lane) for lane in assign(lengths, lanes)), default=0)


def lay_out(episodes: Sequence[Episode], spec: EnvSpec, lanes: int, rows: int) -> Demonstrated:
    """Arrays of numpy [rows, lanes, ...], enough for all; rows without an episode are zeros, not `valid`.

    The last observation of an episode is followed by no action and left out.
    """
    empty = jax.device_get(zeros(spec.observation_space))
    obs = jax.tree.map(lambda x: np.zeros((rows, lanes, *x.shape), x.dtype), empty)
    reset, valid = np.zeros((2, rows, lanes), bool)
    space: Any = spec.action_space
    action = np.zeros((rows, lanes, *space.shape), space.dtype)
    mask = np.ones((rows, lanes, spec.mask_size), bool) if spec.has_action_mask else None
    for lane, chosen in enumerate(assign([len(e) for e in episodes], lanes)):
        at = 0
        for episode in (episodes[i] for i in chosen):
            here = slice(at, at + len(episode))

            def put(x: Any, y: Any, here: slice = here, lane: int = lane) -> None:
                x[here, lane] = y[: here.stop - here.start]

            jax.tree.map(put, obs, counted_from_zero(spec.observation_space, episode.observations))
            put(action, counted_from_zero(space, episode.actions))
            if mask is not None:
                put(mask, episode.action_masks)
            reset[at, lane] = valid[here, lane] = True
            at = here.stop
        if at < rows:
            reset[at, lane] = True
    on_host: Any = {"obs": obs, "reset": reset, "action": action, "action_mask": mask, "valid": valid}
    return Demonstrated(**on_host)


@flax.struct.dataclass
class AggregateState:
    """The rows of this device's environments in the order in which they were collected.

    Attributes:
      rows: [rows, B, ...], each in its own dtype; `action` is the right one.
      carry: tree of [rows / L, B, ...], before the first row of each sequence.
      cursor: int32[], the row that is written next.
      count: int32[], rows of each environment that hold something.
    """

    rows: Annotated[Demonstrated, Sharded(1), Bulk()]
    carry: Annotated[PyTree, Sharded(1), Bulk()]
    cursor: Array
    count: Array


@dataclass(frozen=True)
class Aggregate(Memory):
    """DAgger's: the last steps of every environment with the actions that were right there.

    Grows by each rollout up to a fixed size, then forgets the oldest; samples sequences uniformly.
    """

    plan: AggregatePlan

    state_type: Any = AggregateState

    @property
    def checkpointed(self) -> bool:  # type: ignore[override]
        return self.plan.draws.checkpointed

    @property
    def _sequences(self) -> SequencePlan:
        assert self.plan.draws.sequences is not None
        return self.plan.draws.sequences

    def init(self, example: Trajectory | None) -> AggregateState:
        assert example is not None
        size = self.plan.draws.rows
        rows = ring.empty_rows(size, jax.eval_shape(self._label, example))
        carries = ring.empty_rows(size // self._sequences.interval, example.carry[self.plan.carry])
        zero = jnp.zeros((), jnp.int32)
        return AggregateState(rows, carries, zero, zero)

    def add(self, state: AggregateState, trajectory: Trajectory) -> AggregateState:
        size = self.plan.draws.rows
        length = len(trajectory.reward)
        carry = trajectory.carry[self.plan.carry]
        return dataclasses.replace(
            state,
            rows=ring.put_rows(state.rows, self._label(trajectory), state.cursor, size),
            carry=ring.put_rows(state.carry, carry, state.cursor, size),
            cursor=(state.cursor + length) % size,
            count=jnp.minimum(state.count + length, size),
        )

    def draw(self, state: AggregateState, latest: Trajectory | None, key: Array) -> AggregateDraw:
        assert latest is not None
        sequences = self._sequences
        places = self._places(state)
        env, item, probability = draws.draw(self.plan.draws, places, None, key)
        window = item[None] * sequences.interval + jnp.arange(sequences.burn_in + sequences.length)[:, None]
        rows = ring.take_rows(state.rows, window, env)
        ready = places.suffice(state.count, self.plan.draws.learning_starts)
        return AggregateDraw(
            obs=rows.obs,
            reset=rows.reset,
            action_mask=rows.action_mask,
            carry=ring.take_rows(state.carry, item, env),
            label=rows.action[sequences.burn_in :],
            usable=rows.valid[sequences.burn_in :] & (probability > 0)[None] & ready,
            ready=ready,
            latest=latest,
        )

    def _label(self, trajectory: Trajectory) -> Demonstrated:
        return Demonstrated(
            obs=trajectory.obs,
            reset=trajectory.reset,
            action=trajectory.extras[self.plan.label],
            action_mask=trajectory.action_mask,
            valid=jnp.ones_like(trajectory.reset) if trajectory.valid is None else trajectory.valid,
        )

    def _places(self, state: AggregateState) -> Places:
        """The sequences whose rows are all there; none crosses the seam from the newest to the oldest."""
        size = self.plan.draws.rows
        interval = self._sequences.interval
        rows = self._sequences.burn_in + self._sequences.length
        complete = jnp.maximum((state.count - rows) // interval + 1, 0)
        oldest = jnp.where(state.count == size, state.cursor, 0)
        return Places(state.rows.reset.shape[1], size // interval, oldest // interval, complete)
