"""DAgger: the learner acts, a teacher labels the right actions, and all labels so far are learnt from.

Ross et al. 2011, "A reduction of imitation learning and structured prediction to no-regret online learning".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.actor_critic import ActorCritic, ActorCriticOutput
from jaxrl.algorithms.base import OF_ACTOR_CRITICS, Learned, run_progress
from jaxrl.algorithms.dagger.guided_agent import LABEL, LEARNER, Guidance, GuidedAgent
from jaxrl.algorithms.demonstrations import AggregateDraw, AggregatePlan, hit_name, hits
from jaxrl.algorithms.optimizer import Gradient, optimizer
from jaxrl.algorithms.replay import SequencePlan
from jaxrl.algorithms.replay_algorithm import ReplayAlgorithm, after_burn_in, usable_sum
from jaxrl.algorithms.rollout_state import with_observations
from jaxrl.config import Config, ConfigError, DAggerConfig
from jaxrl.config.replay import SOLVER
from jaxrl.envs.base import EnvSpec
from jaxrl.metrics import tracing
from jaxrl.metrics.reduction import Last, Mean, Metric, Metrics
from jaxrl.types import Acting, Array, LearnerState, PyTree, Trajectory


@flax.struct.dataclass
class DAggerHyperparams:
    """Numeric hyperparameters: float32 scalars and pytree leaves, so that a sweep can vmap over them."""

    learning_rate: Array
    max_grad_norm: Array
    beta: Array
    beta_fraction: Array


@flax.struct.dataclass
class DAggerState(LearnerState):
    """The state of DAgger.

    Attributes:
      draws: int32[], samples of the memory so far, learnt from or not.
      teacher: its policy; None if the environment's solver is the teacher.
    """

    opt_state: PyTree
    draws: Array
    teacher: Acting | None


@dataclass(frozen=True)
class DAgger(ReplayAlgorithm):
    """Maximum likelihood of the teacher's actions, on sequences of the learner's own episodes."""

    agent: ActorCritic

    name: ClassVar = "dagger"
    config_section: ClassVar = DAggerConfig
    hyperparams_type: ClassVar = DAggerHyperparams
    state_type: ClassVar = DAggerState
    offers: ClassVar = OF_ACTOR_CRITICS | {"normalize.observations"}
    watched: ClassVar = ("loss/policy", "grad/norm", "dagger/reward", "dagger/log_prob")
    highlights: ClassVar = (
        ("loss/policy", "loss, all data"),
        ("dagger/log_prob", "likelihood now"),
        ("dagger/beta", "beta"),
        ("grad/norm", "grad norm"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        given = f"`dagger.teacher` (={self._section.teacher!r})"
        spec = self.agent.spec
        if not self._section.teacher:
            raise ConfigError(f"{given} must name the folder of a run, or be {SOLVER!r}")
        if self._asks_solver and not spec.has_solver:
            raise ConfigError(f"{given}: {spec.name!r} has no solver; name the folder of a run")

    @classmethod
    def build_agent(cls, config: Config, spec: EnvSpec) -> ActorCritic:
        return ActorCritic.build(config.network, spec, config.normalize)

    @property
    def collecting_agent(self) -> GuidedAgent:
        return GuidedAgent.of(self.agent, self._asks_solver)

    @property
    def memory(self) -> AggregatePlan:
        length = self._section.trace_length
        sequences = SequencePlan(self._section.burn_in, length, interval=length)
        return AggregatePlan(self.plan(n_step=0, sequences=sequences), label=LABEL, carry=LEARNER)

    @property
    def metrics(self) -> Mapping[str, type[Metric]]:
        """As `Algorithm.metrics`; `accuracy` is the mean absolute error if actions are numbers."""
        hit = hit_name(self.agent.spec)
        own = (hit, f"latest_{hit}", "log_prob", "reward", "beta")
        return self.declared(("loss/policy", "grad/norm", *(f"dagger/{x}" for x in own)))

    @property
    def teacher(self) -> tuple[str, str]:
        return "dagger.teacher", "" if self._asks_solver else self._section.teacher

    def with_teacher(self, learner: DAggerState, acting: Acting) -> DAggerState:
        return dataclasses.replace(learner, teacher=acting)

    def init(self, key: Array, hyperparams: DAggerHyperparams) -> DAggerState:
        policy = self.agent.init(key)
        # The place of a policy that is still to be read: NaN, so that none can be forgotten.
        teacher = None if self._asks_solver else jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), policy)
        return DAggerState(
            policy=policy,
            hyperparams=hyperparams,
            updates=jnp.zeros((), jnp.int32),
            opt_state=optimizer(hyperparams.max_grad_norm, 0.0).init(policy.params),
            draws=jnp.zeros((), jnp.int32),
            teacher=teacher,
        )

    def exploration(self, learner: DAggerState) -> Guidance:
        h = learner.hyperparams
        progress = run_progress(self.config, learner, h.beta_fraction)
        return Guidance(beta=h.beta * (1.0 - progress), teacher=learner.teacher)

    def scheduled_values(self, learner: LearnerState) -> dict[str, float]:
        assert isinstance(learner, DAggerState)
        return {"beta": float(self.exploration(learner).beta)}

    def learn(self, learner: DAggerState, experience: AggregateDraw, key: Array) -> Learned:
        learner = self._with_statistics(learner, experience.latest)
        with tracing.phase("update"):
            gradient, means = self._gradient(learner, experience)
            rate = learner.hyperparams.learning_rate
            after = self.after_step(learner, gradient, rate, experience.ready)
        updated = {
            "loss/policy": means["loss"],
            "grad/norm": gradient.norm,
            f"dagger/{hit_name(self.agent.spec)}": means["hit"],
        }
        metrics = self.means_if(experience.ready, updated, gradient)
        after = dataclasses.replace(after, draws=learner.draws + 1)
        latest = experience.latest
        rows = {name: x for name, x in latest.extras.items() if name != LABEL} | {"reward": latest.reward}
        if latest.valid is not None:
            rows = {name: jnp.where(latest.valid, x, 0.0) for name, x in rows.items()}
        noted = self.axis.psum({name: Mean(x.sum(), latest.steps) for name, x in rows.items()})
        metrics |= {
            self.updates_metric: Last(after.updates),
            f"dagger/latest_{hit_name(self.agent.spec)}": noted["hit"],
            "dagger/log_prob": noted["log_prob"],
            "dagger/reward": noted["reward"],
            "dagger/beta": Mean.of(self.exploration(learner).beta),
        }
        return Learned(after, None, metrics)

    def is_finite(self, learner: DAggerState, metrics: Metrics) -> Array:
        # The best of actions that are all NaN is one of them.
        teacher = jnp.stack([x.sum().astype(jnp.float32) for x in jax.tree.leaves(learner.teacher)] or [0.0])
        return super().is_finite(learner, metrics) & jnp.isfinite(teacher).all()

    def inspect(self, learner: DAggerState, experience: AggregateDraw, key: Array) -> dict[str, Array]:
        learner = self._with_statistics(learner, experience.latest)
        gradient, means = self._gradient(learner, experience)
        seen = self.agent.normalize(learner.policy, experience.obs)
        inputs = (seen, experience.carry, experience.reset, experience.action_mask)
        layers = self.agent.network.layers(learner.policy.params, *inputs)
        found = {"loss/policy": means["loss"], "grad/norm": gradient.norm}
        return self.inspected(layers, gradient, found)

    @property
    def _section(self) -> DAggerConfig:
        return self.config.learner_as(DAggerConfig)

    @property
    def _asks_solver(self) -> bool:
        return self._section.teacher == SOLVER

    def _with_statistics(self, learner: DAggerState, latest: Trajectory) -> DAggerState:
        """With the moments of a rollout's observations, once, before the first update on it."""
        is_first = learner.draws % self.draws_per_iteration == 0
        return with_observations(
            learner,
            self.agent.spec,
            latest.obs,
            latest.valid,
            self.axis,
            choose=lambda old, new: jnp.where(is_first, new, old),
        )

    def _gradient(self, learner: DAggerState, batch: AggregateDraw) -> tuple[Gradient, dict[str, Array]]:
        """(gradient of the mean loss, means `loss` and `hit`), over the steps of all devices that count."""
        seen = self.agent.normalize(learner.policy, batch.obs)

        def run(
            acting: Acting, inputs: tuple[PyTree, Array, Array | None], carry: PyTree
        ) -> ActorCriticOutput:
            obs, reset, mask = inputs
            return self.agent.apply(acting, obs, carry, reset, mask)

        inputs, carry = after_burn_in(
            lambda *x: run(learner.policy, *x).carry,
            (seen, batch.reset, batch.action_mask),
            batch.carry,
            self._section.burn_in,
        )

        def loss(params: PyTree) -> tuple[Array, tuple[dict[str, Array], None]]:
            out = run(dataclasses.replace(learner.policy, params=params), inputs, carry)
            cost = -out.distribution.log_prob(batch.label)
            hit = hits(self.agent, self.agent.greedy(out), batch.label)
            sums = {"loss": usable_sum(cost, batch.usable), "hit": usable_sum(hit, batch.usable)}
            return sums["loss"], (sums, None)

        return self.mean_gradient(loss, learner.policy.params, batch.usable)[:2]
