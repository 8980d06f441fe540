"""The memory of learners from demonstrations: it is full from the start, and returns what it read."""

from __future__ import annotations

from typing import Annotated, Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.demonstrations import Demonstrated, DemonstrationDraw, DemonstrationPlan
from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.experience.demonstrations import lanes
from jaxrl.experience.demonstrations.dataset import DatasetFault, read_dataset
from jaxrl.experience.memory import Memory
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
        """Reads the episodes.

        Raises:
          ConfigError: there are none, one is damaged or of another environment, or they do not fit.
        """
        self._plan = plan
        given = f"`{plan.field}` (={plan.folder!r})"
        if not plan.folder:
            raise ConfigError(f"{given} must name a folder of episodes (jaxrl record, jaxrl prepare-data)")
        with errors_as(ConfigError, f"`{plan.field}`", DatasetFault):
            dataset = read_dataset(plan.folder, plan.spec)
        training, validation = dataset.split(plan.validation)
        needed = lanes.rows_needed([len(e) for e in training], plan.lanes)
        if needed > plan.rows:
            raise ConfigError(
                f"`{plan.rows_field}` (={plan.rows}) must be at least {needed}: so many rows do the "
                f"{len(training)} episodes of {plan.folder} take in {plan.lanes} lanes (`env.num_envs`)"
            )
        held = max(lanes.rows_needed([len(e) for e in validation], plan.lanes), 1)
        held = -(-held // plan.chunk) * plan.chunk
        self._training = lanes.lay_out(training, plan.spec, plan.lanes, plan.rows)
        self._validation = lanes.lay_out(validation, plan.spec, plan.lanes, held)

    def init(self, example: Trajectory | None) -> DemonstrationRows:
        return DemonstrationRows(self._own(self._training), self._own(self._validation))

    def add(self, state: DemonstrationRows, trajectory: Trajectory) -> DemonstrationRows:
        return state

    def draw(self, state: DemonstrationRows, latest: Trajectory | None, key: Array) -> DemonstrationDraw:
        return DemonstrationDraw(state.training, state.validation)

    def feedback(self, state: DemonstrationRows, feedback: PyTree) -> DemonstrationRows:
        return state

    def _own(self, all_lanes: Demonstrated) -> Demonstrated:
        """This device's lanes."""
        axis = self._plan.axis
        count = self._plan.lanes // axis.size

        def own(x: Any) -> Array:
            return jax.lax.dynamic_slice_in_dim(jnp.asarray(x), axis.index() * count, count, axis=1)

        return jax.tree.map(jnp.asarray if axis.size == 1 else own, all_lanes)
