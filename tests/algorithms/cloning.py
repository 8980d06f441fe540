"""Behavioural cloning as an algorithm from outside: its memory gives demonstrations alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxrl.algorithms import OF_ACTOR_CRITICS, ActorCritic, Algorithm, Learned
from jaxrl.algorithms.optimizer import optimizer
from jaxrl.config import AlgorithmConfig, Config, field
from jaxrl.config.fields import above, at_least
from jaxrl.envs.base import EnvSpec
from jaxrl.experience.memory import Memory
from jaxrl.metrics.reduction import Last, Mean, Metric, Metrics
from jaxrl.types import Array, Axis, LearnerState, PyTree, Trajectory


@dataclasses.dataclass(frozen=True)
class CloningConfig(AlgorithmConfig):
    """Behavioural cloning of a rule: the action 1 where the observation is positive."""

    collects: ClassVar[bool] = False

    inverted: bool = field(False, help="demonstrations of the opposite rule")
    learning_rate: float = field(3e-2, at_least(0), help="learning rate of Adam")
    max_grad_norm: float = field(1.0, above(0), help="the gradient is scaled down to this norm")


@flax.struct.dataclass
class Demonstrations(Memory):
    """Arrays of observations [N, O] and of the actions [N] that were right; draws some with replacement."""

    obs: Array
    action: Array
    size: int = flax.struct.field(pytree_node=False, default=64)

    state_type: ClassVar = None

    def init(self, example: Trajectory | None) -> None:
        return None

    def add(self, state: None, trajectory: Trajectory) -> None:
        return None

    def draw(self, state: None, latest: Trajectory | None, key: Array) -> tuple[Array, Array]:
        drawn = jax.random.randint(key, (self.size,), 0, len(self.action))
        return self.obs[drawn], self.action[drawn]

    def feedback(self, state: None, feedback: PyTree) -> None:
        return None


@flax.struct.dataclass
class CloningHyperparams:
    learning_rate: Array
    max_grad_norm: Array


@flax.struct.dataclass
class CloningState(LearnerState):
    opt_state: PyTree


@dataclass(frozen=True)
class Cloning(Algorithm):
    config: Config
    agent: ActorCritic
    axis: Axis

    name: ClassVar = "cloning"
    config_section: ClassVar = CloningConfig
    state_type: ClassVar = CloningState
    highlights: ClassVar = (("loss/policy", "policy loss"),)
    offers: ClassVar = OF_ACTOR_CRITICS

    @classmethod
    def build_agent(cls, config: Config, spec: EnvSpec) -> ActorCritic:
        return ActorCritic.build(config.network, spec, config.normalize)

    @classmethod
    def hyperparameters(cls, config: Config) -> CloningHyperparams:
        names = [each.name for each in dataclasses.fields(CloningHyperparams)]
        return CloningHyperparams(**{name: jnp.float32(getattr(config.learner, name)) for name in names})

    @property
    def memory(self) -> Demonstrations:  # type: ignore[override]
        obs = np.random.default_rng(0).choice(np.float32([-1, 1]), (256, 1))
        right = (obs[:, 0] > 0) ^ self.config.learner.inverted  # type: ignore[attr-defined]
        return Demonstrations(jnp.asarray(obs), jnp.asarray(right, jnp.int32))

    @property
    def metrics(self) -> Mapping[str, type[Metric]]:
        return {"loss/policy": Mean, "grad/norm": Mean, self.updates_metric: Last}

    @property
    def passes_per_step(self) -> float:
        return 64.0

    def init(self, key: Array, hyperparams: CloningHyperparams) -> CloningState:
        policy = self.agent.init(key)
        opt_state = optimizer(hyperparams.max_grad_norm, 0.0).init(policy.params)
        return CloningState(policy, hyperparams, jnp.zeros((), jnp.int32), opt_state)

    def learn(self, learner: CloningState, experience: tuple[Array, Array], key: Array) -> Learned:
        loss, gradient = self._gradient(learner, experience)
        transform = optimizer(learner.hyperparams.max_grad_norm, learner.hyperparams.learning_rate)
        step, opt_state = transform.update(gradient, learner.opt_state)
        policy = learner.policy.replace(params=optax.apply_updates(learner.policy.params, step))
        learner = learner.replace(policy=policy, opt_state=opt_state, updates=learner.updates + 1)
        norm = Mean.of(optax.tree.norm(gradient))
        metrics: Metrics = {"loss/policy": Mean.of(loss), "grad/norm": norm}
        return Learned(learner, None, {**metrics, self.updates_metric: Last(learner.updates)})

    def is_finite(self, learner: CloningState, metrics: Metrics) -> Array:
        found: Any = metrics["loss/policy"]
        return jnp.isfinite(found.total)

    def inspect(self, learner: CloningState, experience: tuple[Array, Array], key: Array) -> dict[str, Array]:
        loss, gradient = self._gradient(learner, experience)
        return {"loss/policy": loss[None, None], "grad/norm": optax.tree.norm(gradient)[None, None]}

    def _gradient(self, learner: CloningState, experience: tuple[Array, Array]) -> tuple[Array, PyTree]:
        obs, action = experience
        # The same on all devices, as all draw alike: there is nothing to sum.
        begins, carry = jnp.ones((1, len(action)), bool), self.agent.initial_carry(len(action))

        def loss(params: PyTree) -> Array:
            acting = learner.policy.replace(params=params)
            out = self.agent.apply(acting, obs[None], carry, begins, None)
            return -out.distribution.log_prob(action[None]).mean()

        return jax.value_and_grad(loss)(learner.policy.params)
