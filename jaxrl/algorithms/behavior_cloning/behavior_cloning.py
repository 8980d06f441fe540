"""Behavioural cloning: the likelihood of what was demonstrated, on sequences if the network has memory.

Pomerleau 1988, "ALVINN"; recurrent ones as in Mandlekar et al. 2021, "What matters in learning from offline
human demonstrations".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import flax.struct
import jax
import jax.flatten_util
import jax.numpy as jnp

from jaxrl.algorithms.actor_critic import ActorCritic
from jaxrl.algorithms.base import OF_ACTOR_CRITICS, Learned
from jaxrl.algorithms.demonstrations import (
    Demonstrated,
    DemonstrationDraw,
    DemonstrationPlan,
    class_weights,
    hit_name,
    hits,
    retrace,
)
from jaxrl.algorithms.minibatch_algorithm import EpochsAlgorithm
from jaxrl.algorithms.minibatches import MinibatchState
from jaxrl.algorithms.reports import Epochs, Reports
from jaxrl.algorithms.rollout_state import with_observations
from jaxrl.algorithms.sequences import Batch
from jaxrl.config import BehaviorCloningConfig, Config, ConfigError
from jaxrl.envs.base import Discrete, EnvSpec
from jaxrl.metrics import tracing
from jaxrl.metrics.reduction import Last, Mean, Metric, Metrics
from jaxrl.types import Array, PyTree

_NAME = "behavior_cloning"


@flax.struct.dataclass
class BehaviorCloningHyperparams:
    """Numeric hyperparameters: float32 scalars and pytree leaves, so that a sweep can vmap over them."""

    learning_rate: Array
    max_grad_norm: Array


@flax.struct.dataclass
class EarlyStop:
    """The end of learning by validation (Prechelt 1998, "Early stopping - but when?").

    The policy has the parameters of the validation with the best likelihood, whatever ends the run and when;
    learning continues from the latest validation's.

    Attributes:
      params: parameters of the latest validation.
      loss: float32[], of the best validation.
      waited: int32[], validations since then.
      stopped: bool[], True if learning has ended.
    """

    params: PyTree
    loss: Array
    waited: Array
    stopped: Array

    def after(self, best: PyTree, params: PyTree, loss: Array, patience: int) -> tuple[PyTree, EarlyStop]:
        """(best parameters, the state) with one more validation, of `params` with `loss`.

        A NaN, such as of no episodes, is as good as another, not as a number.
        """
        better = ~self.stopped & ((loss < self.loss) | (jnp.isnan(loss) & jnp.isinf(self.loss)))
        waited = jnp.where(better, 0, self.waited + 1)
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), params, best)
        return best, EarlyStop(
            params=params,
            loss=jnp.where(better & ~jnp.isnan(loss), loss, self.loss),
            waited=waited,
            stopped=self.stopped | (waited >= patience),
        )


@flax.struct.dataclass
class BehaviorCloningState(MinibatchState):
    """The state of cloning.

    Attributes:
      early_stop: None if learning continues whatever validation says.
    """

    early_stop: EarlyStop | None


@dataclass(frozen=True)
class BehaviorCloning(EpochsAlgorithm):
    """Learns one pass over all training episodes at a time, and validates after each."""

    agent: ActorCritic

    name: ClassVar = _NAME
    config_section: ClassVar = BehaviorCloningConfig
    hyperparams_type: ClassVar = BehaviorCloningHyperparams
    state_type: ClassVar = BehaviorCloningState
    padded: ClassVar = True
    offers: ClassVar = OF_ACTOR_CRITICS | {"normalize.observations", "network.frozen"}
    highlights: ClassVar = (
        ("loss/policy", "loss, training"),
        (f"{_NAME}/validation_loss", "loss, validation"),
        ("grad/norm", "grad norm"),
        (f"{_NAME}/learning_rate", "learning rate"),
    )

    @classmethod
    def build_agent(cls, config: Config, spec: EnvSpec) -> ActorCritic:
        section = config.learner_as(BehaviorCloningConfig)
        if section.class_weights != "none" and not isinstance(spec.action_space, Discrete):
            raise ConfigError(
                f"`{_NAME}.class_weights` (={section.class_weights!r}) needs a Discrete action space; the "
                f"actions of {spec.name!r} are {type(spec.action_space).__name__}"
            )
        return ActorCritic.build(config.network, spec, config.normalize)

    @property
    def memory(self) -> DemonstrationPlan:
        section = self._section
        return DemonstrationPlan(
            field=f"{_NAME}.data",
            folder=section.data,
            spec=self.agent.spec,
            lanes=self.config.env.num_envs,
            rows=self.config.rollout_length,
            rows_field=f"{_NAME}.rollout_length",
            chunk=self.config.sequence_length,
            validation=section.validation,
            axis=self.axis,
        )

    @property
    def metrics(self) -> Mapping[str, type[Metric]]:
        """As `Algorithm.metrics`; `accuracy` is the mean absolute error if actions are numbers."""
        hit = hit_name(self.agent.spec)
        own = (*self._of_updates, f"{_NAME}/validation_loss", f"{_NAME}/validation_{hit}")
        told = (f"{_NAME}/stopped", f"{_NAME}/waited") if self._section.patience else ()
        return self.declared(own, **dict.fromkeys(told, Last))

    @property
    def passes_per_step(self) -> float:
        section = self._section
        return section.num_epochs * section.steps_per_update(self.config.env.num_envs)

    def init(self, key: Array, hyperparams: BehaviorCloningHyperparams) -> BehaviorCloningState:
        learner: BehaviorCloningState = self.first_state(key, hyperparams, early_stop=None)
        if not self._section.patience:
            return learner
        early_stop = EarlyStop(
            params=learner.policy.params,
            loss=jnp.float32(jnp.inf),
            waited=jnp.zeros((), jnp.int32),
            stopped=jnp.zeros((), bool),
        )
        return dataclasses.replace(learner, early_stop=early_stop)

    def learn(self, learner: BehaviorCloningState, experience: DemonstrationDraw, key: Array) -> Learned:
        best = learner.policy.params
        learner = self._with_statistics(self._as_it_learns(learner), experience.training)
        with tracing.phase("update"):
            epochs = self._update(learner, experience.training, key)
        learner = epochs.learner
        with tracing.phase("validate"):
            validation = self._validate(learner, experience.validation)
        metrics: Metrics = epochs.averages(self._of_updates) | validation
        if self.config.log.layers:
            metrics |= epochs.layer_norms()
        learner, told = self._stop_early(learner, best, metrics[f"{_NAME}/validation_loss"])
        return Learned(learner, None, metrics | told | {self.updates_metric: Last(learner.updates)})

    def is_finite(self, learner: BehaviorCloningState, metrics: Metrics) -> Array:
        checked = [metrics[name] for name in ("loss/policy", "grad/norm")]
        return jnp.isfinite(jnp.stack(jax.tree.leaves(checked))).all()

    def inspect(self, learner: BehaviorCloningState, experience: DemonstrationDraw, key: Array) -> Reports:
        learner = self._with_statistics(self._as_it_learns(learner), experience.training)
        batch = self._batch(learner, experience.training)
        return self.engine(learner, watch=True)(learner, batch, key).reports

    def loss(
        self, learner: BehaviorCloningState, params: PyTree, batch: Batch, key: Array
    ) -> tuple[Array, dict[str, Array], None]:
        """The negative log-likelihood of a minibatch [L, N], and the sums that it reports."""
        out = self.output(learner, params, batch)
        cost = -out.distribution.log_prob(batch.action)
        hit = hits(self.agent, self.agent.greedy(out), batch.action)
        sums = {"loss/policy": batch.total(cost), f"{_NAME}/{hit_name(self.agent.spec)}": batch.total(hit)}
        weight = batch.rows.get("weight")
        return sums["loss/policy"] if weight is None else batch.total(cost * weight), sums, None

    @property
    def _section(self) -> BehaviorCloningConfig:
        return self.config.learner_as(BehaviorCloningConfig)

    @property
    def _of_updates(self) -> tuple[str, ...]:
        return ("loss/policy", f"{_NAME}/{hit_name(self.agent.spec)}", "grad/norm", f"{_NAME}/learning_rate")

    def _as_it_learns(self, learner: BehaviorCloningState) -> BehaviorCloningState:
        """With the parameters that learning continues from in place of the ones that validated best."""
        if (early_stop := learner.early_stop) is None:
            return learner
        keeps = early_stop.stopped | (learner.updates == 0)  # The latter may have come from another run.
        params = jax.tree.map(
            lambda own, latest: jnp.where(keeps, own, latest), learner.policy.params, early_stop.params
        )
        return dataclasses.replace(learner, policy=dataclasses.replace(learner.policy, params=params))

    def _with_statistics(self, learner: BehaviorCloningState, shown: Demonstrated) -> BehaviorCloningState:
        """With the moments of all training observations, of each task its own, unless it has some already."""
        stats = learner.policy.obs_stats
        if stats is None:
            return learner
        started = stats.count > 0  # of each of several tasks

        def choose(own: Array, new: Array) -> Array:
            return jnp.where(started.reshape(*started.shape, *[1] * (own.ndim - started.ndim)), own, new)

        return with_observations(
            learner, self.agent.spec, shown.obs, shown.valid, self.axis, choose, anew=True
        )

    def _batch(self, learner: BehaviorCloningState, shown: Demonstrated) -> Batch:
        """The rows for minibatches, with the carries of acting by the present parameters."""
        action = self.agent.head.from_env(shown.action)
        rows = {}
        if self._section.class_weights == "balanced":
            space = self.agent.spec.action_space
            assert isinstance(space, Discrete)
            rows["weight"] = class_weights(shown.action, shown.valid, space.n, self.axis)
        return Batch(
            obs=self.agent.normalize(learner.policy, shown.obs),
            reset=shown.reset,
            action=action,
            action_mask=shown.action_mask,
            valid=shown.valid,
            carry=retrace(self.agent, learner.policy, shown, action, self.config.sequence_length).carry,
            rows=rows,
        )

    def _update(self, learner: BehaviorCloningState, shown: Demonstrated, key: Array) -> Epochs:
        def run() -> Epochs:
            return self.engine(learner)(learner, self._batch(learner, shown), key)

        if learner.early_stop is None:
            return run()

        return jax.lax.cond(learner.early_stop.stopped, lambda: Epochs.none(run, learner), run)

    def _validate(self, learner: BehaviorCloningState, shown: Demonstrated) -> Metrics:
        action = self.agent.head.from_env(shown.action)
        found = retrace(self.agent, learner.policy, shown, action, self.config.sequence_length)
        rows = {
            "validation_loss": -found.log_prob,
            f"validation_{hit_name(self.agent.spec)}": hits(self.agent, found.greedy, action),
        }
        sums = {name: jnp.where(shown.valid, x, 0.0).sum() for name, x in rows.items()}
        sums, count = self.axis.psum((sums, shown.valid.sum(dtype=jnp.float32)))
        known = (count > 0).astype(jnp.float32)
        return {f"{_NAME}/{name}": Mean(x / jnp.maximum(count, 1.0), known) for name, x in sums.items()}

    def _stop_early(
        self, learner: BehaviorCloningState, best: PyTree, validation: Metric
    ) -> tuple[BehaviorCloningState, Metrics]:
        """With the best parameters so far in the policy; `best` were those before this validation."""
        if learner.early_stop is None:
            return learner, {}
        loss = jnp.where(validation.is_empty, jnp.nan, validation.value())
        best, found = learner.early_stop.after(best, learner.policy.params, loss, self._section.patience)
        policy = dataclasses.replace(learner.policy, params=best)
        told: Metrics = {
            f"{_NAME}/stopped": Last(found.stopped.astype(jnp.int32)),
            f"{_NAME}/waited": Last(found.waited),
        }
        return dataclasses.replace(learner, policy=policy, early_stop=found), told
