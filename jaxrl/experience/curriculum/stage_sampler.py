"""The curriculum by stages as a task sampler: its decisions are made on the device, from its own state."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config import Config, ConfigError
from jaxrl.config.fields import LARGEST_INT32
from jaxrl.config.stages import Stage, parse
from jaxrl.envs.base import JaxEnv
from jaxrl.envs.host_env import HostFactory
from jaxrl.experience.curriculum.task_tables import TaskTables, TaskWeights
from jaxrl.experience.curriculum.window import EpisodeWindow, WindowShape, totals
from jaxrl.experience.statistics import EpisodeReports
from jaxrl.experience.tasks import TaskSampler
from jaxrl.metrics.reduction import Last, LastMean, Mean, Metric, Metrics
from jaxrl.types import Array, Axis, EpisodeRows, PyTree, Trajectory

# The values that a window keeps of each episode, in this order.
_SUCCESS, _RETURN, _COST = range(3)
_PREFIX = "curriculum"


@flax.struct.dataclass
class StageState:
    """The position in a curriculum; int32[].

    Attributes:
      stage: from 0 on.
      visit: changes of stage so far.
      steps: of all environments, since the stage began.
      episodes: of the stage that began and ended since then.
      window: the latest of these, by environment.
    """

    stage: Array
    visit: Array
    steps: Array
    episodes: Array
    window: EpisodeWindow


@dataclass(frozen=True)
class StageSampler(TaskSampler):
    """Tasks of the present stage, and of earlier stages for a share of the episodes.

    After each rollout it looks at the window: the stage's latest episodes, the same number from each
    environment. An episode counts for the stage that it began in, and only if that continues.

    Attributes:
      tables: their tasks; None of several environments in one, which take none.
      weights: of the losses of these; None if all count alike.
      start: the first stage, from 0 on.
      knows_success: True if success is known of episodes.
      cost: the report that counts collisions; "" for none.
    """

    stages: tuple[Stage, ...]
    tables: TaskTables | None
    weights: TaskWeights | None
    env: JaxEnv | HostFactory
    shape: WindowShape
    start: int
    knows_success: bool
    cost: str

    @classmethod
    def of(cls, config: Config, env: JaxEnv | HostFactory, reports: EpisodeReports) -> StageSampler:
        """The sampler; ConfigError if a stage does not fit the environment or its reports of episodes."""
        stages = parse(config.curriculum.stages)
        for i, stage in enumerate(stages):
            label = f"`curriculum.stages`: stage {i + 1}"
            if not reports.knows_success and (stage.success is not None or stage.back is not None):
                field = "success" if stage.success is not None else "back"
                raise ConfigError(
                    f"{label}: `{field}` needs `env.success`, for {env.spec.name} does not "
                    f"{'declare' if reports.is_assumed else 'report'} when an episode is a success"
                )
            if stage.cost and stage.cost not in reports.labels:
                labels = ", ".join(reports.labels) or "nothing"
                raise ConfigError(
                    f"{label}: `cost` (={stage.cost!r}) is not reported by {env.spec.name}, which reports "
                    f"{labels}"
                )
            if stage.epsilon is not None:
                raise ConfigError(
                    f"{label}: `epsilon` is for custom loops; training explores by the section "
                    f"`{config.section}`"
                )
        weights = TaskWeights.of(stages, env)
        if env.spec.task_names:  # No episode is of an earlier stage where stages differ in weights alone.
            stages = tuple(dataclasses.replace(stage, earlier=0.0) for stage in stages)
        return cls(
            stages=stages,
            tables=None if env.spec.task_names else TaskTables.of(stages, env),
            weights=weights,
            env=env,
            shape=WindowShape(max(stage.window for stage in stages), config.env.num_envs),
            start=config.curriculum.start_stage - 1,
            knows_success=reports.knows_success,
            cost=next((stage.cost for stage in stages if stage.cost), ""),
        )

    def init(self, key: Array) -> StageState:
        return _begin(jnp.asarray(self.start, jnp.int32), jnp.zeros((), jnp.int32), self.shape.empty(3))

    def choose(self, state: StageState, keys_B: Array) -> PyTree:
        earlier = jnp.asarray(np.array([s.earlier for s in self.stages], np.float32))[state.stage]

        def one(key: Array) -> PyTree:
            which, within = jax.random.split(key)
            uniform = jax.random.uniform(which, (2,))
            before = (uniform[1] * state.stage.astype(jnp.float32)).astype(jnp.int32)
            goes_back = (uniform[0] < earlier) & (state.stage > 0)
            stage = jnp.where(goes_back, jnp.minimum(before, state.stage - 1), state.stage)
            task = None if self.tables is None else self.tables.draw(within, stage)
            return {"stage": stage, "visit": state.visit, "task": task}

        return jax.vmap(one)(keys_B)

    def environment_task(self, task: PyTree) -> PyTree:
        return task["task"]

    def weigh(self, state: StageState, trajectory: Trajectory) -> Array | None:
        return None if self.weights is None else self.weights.of_rows(state.stage, self.env, trajectory)

    def update(
        self, state: StageState, episodes: EpisodeRows, signals: Mapping[str, Array], axis: Axis
    ) -> StageState:
        own = episodes.ended & (episodes.task["stage"] == state.stage)
        own = own & (episodes.task["visit"] == state.visit)
        count = axis.psum(jnp.sum(own, dtype=jnp.int32))
        made = own.size * axis.size
        steps = jnp.where(state.steps > LARGEST_INT32 - made, LARGEST_INT32, state.steps + made)
        zeros = jnp.zeros_like(episodes.episode_return)
        success = zeros if episodes.success is None else episodes.success
        cost = episodes.reports[self.cost] if self.cost else zeros
        values = jnp.stack([success, episodes.episode_return, cost], axis=-1)
        state = StageState(
            stage=state.stage,
            visit=state.visit,
            steps=steps,
            episodes=state.episodes + count,
            window=self.shape.add(state.window, own, values, axis),
        )
        return self._decide(state)

    @property
    def metrics(self) -> Mapping[str, type[Metric]]:
        kinds: dict[str, type[Metric]] = {"stage": Last, "steps": Last, "episodes": Last}
        if self.knows_success:
            kinds |= {"success_rate": LastMean, "earlier_success_rate": Mean}
        if self.cost:
            kinds["collisions"] = LastMean
        if self.weights is not None:
            kinds |= {f"weight/{name}": LastMean for name in self.weights.names}
        return {f"{_PREFIX}/{name}": kind for name, kind in kinds.items()}

    @property
    def highlights(self) -> tuple[tuple[str, str], ...]:
        success = ((f"{_PREFIX}/success_rate", "success"),) if self.knows_success else ()
        return ((f"{_PREFIX}/stage", "stage"), *success)

    def report(self, state: StageState, episodes: EpisodeRows, axis: Axis) -> Metrics:
        in_window, sums = totals(state.window, jnp.asarray(self._slots)[state.stage])
        found: Metrics = {
            "stage": Last(state.stage + 1),
            "steps": Last(state.steps),
            "episodes": Last(state.episodes),
        }
        if self.knows_success:
            assert episodes.success is not None
            earlier = episodes.ended & (episodes.task["stage"] < state.stage)
            successes = jnp.sum(jnp.where(earlier, episodes.success, 0.0))
            found["success_rate"] = LastMean(sums[_SUCCESS], in_window)
            found["earlier_success_rate"] = Mean(*axis.psum((successes, jnp.sum(earlier, dtype=jnp.float32))))
        if self.cost:
            found["collisions"] = LastMean(sums[_COST], in_window)
        if self.weights is not None:
            weights = jnp.asarray(self.weights.table)[state.stage]
            found |= {
                f"weight/{name}": LastMean(weights[k], jnp.ones(()))
                for k, name in enumerate(self.weights.names)
            }
        return {f"{_PREFIX}/{name}": metric for name, metric in found.items()}

    def event(self, row: Mapping[str, float], steps: int) -> str:
        began = int(row[f"{_PREFIX}/steps"])
        if began >= steps:
            return ""
        stage = int(row[f"{_PREFIX}/stage"])
        name = self.stages[stage - 1].name
        return f"stage {stage} of {len(self.stages)} ({name}) since step {int(row['steps']) - began}"

    def _decide(self, state: StageState) -> StageState:
        """Advances to the next stage, returns to the one before, or stays."""
        in_window, sums = totals(state.window, jnp.asarray(self._slots)[state.stage])
        limits = {name: jnp.asarray(x)[state.stage] for name, x in self._limits.items()}
        is_full = in_window >= limits["window"]
        reaches = sums[_SUCCESS] >= limits["success"]
        reaches &= sums[_RETURN] >= limits["returns"]
        reaches &= (sums[_COST] <= limits["collisions"]) & limits["has_threshold"]
        may_end = is_full & (state.steps >= limits["least_steps"])
        must_end = state.steps >= limits["most_steps"]
        goes_on = ((may_end & reaches) | must_end) & (state.stage < len(self.stages) - 1)
        goes_back = may_end & ~goes_on & (sums[_SUCCESS] < limits["back"]) & (state.stage > 0)
        stage = state.stage + goes_on.astype(jnp.int32) - goes_back.astype(jnp.int32)
        changed = goes_on | goes_back
        fresh = _begin(stage, state.visit + 1, self.shape.empty(3))
        return jax.tree.map(lambda new, old: jnp.where(changed, new, old), fresh, state)

    @cached_property
    def _slots(self) -> np.ndarray:
        return self.shape.slots([stage.window for stage in self.stages])

    @cached_property
    def _limits(self) -> dict[str, np.ndarray]:
        """[S] by name; sums over a window instead of means, which round where counts do not."""

        stages = self.stages

        def sums(name: str, without: float) -> np.ndarray:
            values = [getattr(stage, name) for stage in stages]
            pairs = zip(values, stages, strict=True)
            return np.array([without if x is None else x * stage.window for x, stage in pairs], np.float32)

        return {
            "window": np.array([stage.window for stage in stages], np.float32),
            "success": sums("success", -np.inf),
            "returns": sums("returns", -np.inf),
            "collisions": sums("collisions", np.inf),
            "back": sums("back", -np.inf),
            "has_threshold": np.array([stage.has_threshold for stage in stages]),
            "least_steps": np.array([stage.least_steps for stage in stages], np.int32),
            "most_steps": np.array([stage.most_steps or LARGEST_INT32 for stage in stages], np.int32),
        }


def _begin(stage: Array, visit: Array, window: EpisodeWindow) -> StageState:
    zero = jnp.zeros((), jnp.int32)
    return StageState(stage=stage, visit=visit, steps=zero, episodes=zero, window=window)
