"""Parts that all algorithms share which learn from a replay memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxrl.algorithms.agent import Agent
from jaxrl.algorithms.base import Algorithm
from jaxrl.algorithms.optimizer import Gradient, descend, layer_norms
from jaxrl.algorithms.replay import PriorityPlan, ReplayPlan, SequencePlan, hindsight_plan
from jaxrl.algorithms.reports import nonfinite
from jaxrl.config import Config, MemoryConfig, ReplayConfig
from jaxrl.metrics.reduction import Mean, Metrics
from jaxrl.networks import check_platform
from jaxrl.types import Array, Axis, PyTree


@dataclasses.dataclass(frozen=True)
class ReplayAlgorithm(Algorithm):
    """One update on each batch from the replay memory; none before enough is kept.

    Attributes:
      watched: metrics in which a NaN shows.
    """

    config: Config
    agent: Agent
    axis: Axis
    watched: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        check_platform(self.config.network, self.axis)
        section = self.config.learner
        if isinstance(section, ReplayConfig):
            section.check_sizes(self.name, self.config.env.num_envs, self.agent.spec.stacked_frames - 1)

    @property
    def sequences(self) -> SequencePlan | None:
        """The sequences that are replayed; None: single steps. May be overridden."""
        return None

    @property
    def memory(self) -> Any:
        """A replay memory. May be overridden."""
        section = self.config.learner_as(ReplayConfig)
        priorities = PriorityPlan(section.priority_alpha, section.priority_beta, section.priority_beta_draws)
        return self.plan(
            n_step=section.n_step,
            priorities=priorities if section.prioritised else None,
            hindsight=hindsight_plan(self.config, self.agent.spec),
            sequences=self.sequences,
            frames=self.agent.spec.stacked_frames,
        )

    def plan(self, **fields: Any) -> ReplayPlan:
        """A memory of the section's sizes, and these fields."""
        section = self.config.learner_as(MemoryConfig)
        envs = self.config.env.num_envs
        return ReplayPlan(
            rows=section.rows(envs),
            batch_size=section.batch_size,
            groups=section.groups(envs),
            learning_starts=-(-section.learning_starts // envs),
            axis=self.axis,
            checkpointed=section.checkpoint,
            **fields,
        )

    @property
    def draws_per_iteration(self) -> int:  # type: ignore[override]
        return self.config.learner_as(MemoryConfig).updates_per_rollout

    @property
    def passes_per_step(self) -> float:
        section = self.config.learner_as(MemoryConfig)
        steps = section.steps_per_update(self.config.env.num_envs)
        return section.updates_per_rollout * steps / self.config.steps_per_iteration

    def mean_gradient(
        self, loss: Callable[[PyTree], Any], params: PyTree, usable: Array
    ) -> tuple[Gradient, dict[str, Array], Any]:
        """(gradient, means by name, the rest), over the usable steps of all devices.

        Args:
          loss: params -> (a sum over usable steps, (sums by name, the rest: anything of this device)).
          usable: bool, of the steps of this device.
        """
        gradient, (sums, rest) = jax.grad(loss, has_aux=True)(params)
        gradient, sums, count = self.axis.psum((gradient, sums, usable.sum(dtype=jnp.float32)))
        scale = 1.0 / jnp.maximum(count, 1.0)
        return Gradient.of(gradient, scale), {name: x * scale for name, x in sums.items()}, rest

    def after_step(self, learner: Any, gradient: Gradient, rate: Array, made: Array) -> Any:
        """The learner after a step of its one optimiser, `opt_state`; as it was if not `made` (bool[])."""
        params, opt_state = descend(
            learner.policy.params, gradient, learner.opt_state, learner.hyperparams.max_grad_norm, rate, made
        )
        return dataclasses.replace(
            learner,
            policy=dataclasses.replace(learner.policy, params=params),
            updates=learner.updates + made.astype(jnp.int32),
            opt_state=opt_state,
        )

    def means_if(self, ready: Array, means: dict[str, Array], gradient: Gradient) -> Metrics:
        """The metrics of an update, which count if enough is kept to learn: `ready`, bool[].

        These are `means` over the batch and, if configured, norms of the gradient by layer.
        """
        made = ready.astype(jnp.float32)
        if self.config.log.layers:
            norms = layer_norms(gradient.of_sum)
            means = means | {name: x * gradient.scale for name, x in norms.items()}
        return {name: Mean(x * made, made) for name, x in means.items()}

    def inspected(
        self, layers: Sequence[tuple[str, Array]], gradient: Gradient, means: dict[str, Array]
    ) -> dict[str, Array]:
        """The result of `inspect`, of the one update of an iteration."""
        found = nonfinite(layers, gradient.of_sum, self.axis) | means
        return {name: x[None, None] for name, x in found.items()}

    def is_finite(self, learner: Any, metrics: Metrics) -> Array:
        # Beside the loss, rewards and notes of the latest rollout: rows that were not sampled count as well.
        checked = [metrics[name] for name in self.watched]
        return jnp.isfinite(jnp.stack(jax.tree.leaves(checked))).all()

    def single_steps(self, obs: PyTree, mask: Array | None) -> tuple[Any, ...]:
        """Single steps [1, N, ...] as `Agent.apply` takes them after `acting`."""
        one = lambda tree: jax.tree.map(lambda x: x[None], tree)  # noqa: E731
        envs = len(jax.tree.leaves(obs)[0])
        return one(obs), self.agent.initial_carry(envs), jnp.ones((1, envs), bool), one(mask)

    def latest(self, experience: Any, noted: str) -> dict[str, Mean]:
        """The metrics `reward`, of a step, and `noted`, of a row, of the latest rollout, and `transitions`.

        The last is the share of rows that are steps; rows of final observations count as steps of the run.
        """
        one = jnp.ones((), jnp.float32)
        rows = one * self.config.steps_per_iteration / self.axis.size
        means = {
            f"{self.name}/reward": Mean(experience.latest_reward, experience.latest_steps),
            f"{self.name}/{noted}": Mean(experience.latest_noted, one),
            f"{self.name}/transitions": Mean(experience.latest_steps, rows),
        }
        return self.axis.psum(means)


def after_burn_in(
    run: Callable[[PyTree, PyTree], PyTree], inputs: PyTree, carry: PyTree, rows: int
) -> tuple[PyTree, PyTree]:
    """(the inputs [W, N, ...] after the burn-in, its `rows`; the carry before them, without a gradient).

    `run` takes inputs and the carry before them, and returns the carry after them.
    """
    if rows:
        carry = jax.lax.stop_gradient(run(jax.tree.map(lambda x: x[:rows], inputs), carry))
    return jax.tree.map(lambda x: x[rows:], inputs), carry


def usable_sum(x: Array, usable: Array) -> Array:
    """The sum of the usable elements; others may hold anything, also NaN."""
    return jnp.where(usable, x, 0.0).sum()
