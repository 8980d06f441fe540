"""DQN: Q-learning from a replay memory, with a target network.

Mnih et al. 2015, "Human-level control through deep reinforcement learning"; double, dueling, prioritised and
n-step as in Hessel et al. 2018, "Rainbow".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import flax.struct
import jax
import jax.numpy as jnp
import optax

from jaxrl.algorithms.base import Learned
from jaxrl.algorithms.dqn import losses
from jaxrl.algorithms.dqn.agent import LadderQAgent, ladder
from jaxrl.algorithms.hyperparams import read_hyperparams
from jaxrl.algorithms.optimizer import optimizer
from jaxrl.algorithms.parameters import layer_norms
from jaxrl.algorithms.q_values import QAgent, value_of
from jaxrl.algorithms.replay import Transitions, n_step_return
from jaxrl.algorithms.replay_algorithm import ReplayAlgorithm
from jaxrl.config import Config, ConfigError, DQNConfig
from jaxrl.envs.base import Discrete, EnvSpec
from jaxrl.metrics import tracing
from jaxrl.metrics.reduction import Last, Mean, Metric, Metrics
from jaxrl.types import Array, Axis, LearnerState, PyTree


@flax.struct.dataclass
class DQNHyperparams:
    """Numeric hyperparameters: float32 scalars and pytree leaves, so that a sweep can vmap over them."""

    learning_rate: Array
    gamma: Array
    exploration_start: Array
    exploration_end: Array
    exploration_fraction: Array
    target_period: Array
    target_rate: Array
    max_grad_norm: Array


@flax.struct.dataclass
class DQNState(LearnerState):
    """The state of DQN.

    Attributes:
      opt_state: of Adam.
      target: parameters of the target network.
    """

    opt_state: PyTree
    target: PyTree


@dataclass(frozen=True)
class DQN(ReplayAlgorithm):
    """One update on each draw of the replay memory; none before enough is kept."""

    config: Config
    agent: QAgent
    axis: Axis

    name: ClassVar = "dqn"
    config_section: ClassVar = DQNConfig
    state_type: ClassVar = DQNState
    watched: ClassVar = ("loss/value", "grad/norm", "dqn/reward", "dqn/value")
    highlights: ClassVar = (
        ("loss/value", "value loss"),
        ("dqn/q", "Q-value"),
        ("dqn/epsilon", "epsilon"),
        ("grad/norm", "grad norm"),
    )

    @classmethod
    def build_agent(cls, config: Config, spec: EnvSpec) -> QAgent:
        section = config.learner
        assert isinstance(section, DQNConfig)
        if not isinstance(spec.action_space, Discrete):
            raise ConfigError(
                f"`algorithm` (='dqn') needs discrete actions, and those of {spec.name!r} are "
                f"{spec.action_space}: use `sac`"
            )
        cls.require_goals(config, spec)
        cls.require_memoryless(config, "pqn")
        given = (config.network, spec, config.normalize, section.dueling, True)
        if section.exploration == "ladder":
            return dataclasses.replace(LadderQAgent.build(*given), num_envs=config.env.num_envs)
        return QAgent.build(*given)

    @classmethod
    def hyperparameters(cls, config: Config) -> DQNHyperparams:
        return read_hyperparams(DQNHyperparams, config.learner)

    @property
    def section(self) -> DQNConfig:
        assert isinstance(self.config.learner, DQNConfig)
        return self.config.learner

    @property
    def metrics(self) -> Mapping[str, type[Metric]]:
        names = ("loss/value", "grad/norm", *(f"dqn/{x}" for x in ("q", "epsilon", "reward", "value")))
        declared: dict[str, type[Metric]] = {**dict.fromkeys(names, Mean), self.updates_metric: Last}
        if self.config.log.layers:
            params = jax.eval_shape(self.agent.init_params, jax.random.key(0))
            declared |= dict.fromkeys(jax.eval_shape(layer_norms, params), Mean)
        return declared

    def init(self, key: Array, hyperparams: DQNHyperparams) -> DQNState:
        policy = self.agent.init(key)
        return DQNState(
            policy=policy,
            hyperparams=hyperparams,
            updates=jnp.zeros((), jnp.int32),
            opt_state=optimizer(hyperparams.max_grad_norm, 0.0).init(policy.params),
            # Not the same arrays: all of the state is donated.
            target=jax.tree.map(jnp.copy, policy.params),
        )

    def exploration(self, learner: DQNState) -> Array:
        """float32[], epsilon: falls linearly with the updates made; 1 times the ladder's."""
        h = learner.hyperparams
        if self.section.exploration == "ladder":
            return jnp.ones((), jnp.float32)
        planned = jnp.maximum(h.exploration_fraction * float(self.config.total_updates), 1.0)
        progress = jnp.minimum(learner.updates.astype(jnp.float32) / planned, 1.0)
        epsilon: Array = h.exploration_start + progress * (h.exploration_end - h.exploration_start)
        return epsilon

    def scheduled(self, learner: LearnerState) -> dict[str, float]:
        return {} if self.section.exploration == "ladder" else super().scheduled(learner)

    def learn(self, learner: DQNState, experience: Transitions, key: Array) -> Learned:
        with tracing.phase("update"):
            gradient, sums, error = self._gradient(learner, experience)
            after = self._updated(learner, gradient)
        # Not a branch: under `vmap` both of its sides would be computed.
        after = jax.tree.map(lambda x, y: jnp.where(experience.ready, y, x), learner, after)
        latest, made = self.latest(experience), experience.ready.astype(jnp.float32)
        metrics: Metrics = {
            "loss/value": Mean(sums["loss"] * made, made),
            "grad/norm": Mean(optax.tree.norm(gradient) * made, made),
            "dqn/q": Mean(sums["q"] * made, made),
            "dqn/epsilon": Mean.of(self._mean_epsilon(learner)),
            "dqn/reward": Mean.of(latest["reward"]),
            "dqn/value": Mean.of(latest["noted"]),
            self.updates_metric: Last(after.updates),
        }
        if self.config.log.layers:
            metrics |= {name: Mean(x * made, made) for name, x in layer_norms(gradient).items()}
        return Learned(after, experience.feedback(error), metrics)

    def inspect(self, learner: DQNState, experience: Transitions, key: Array) -> dict[str, Array]:
        gradient, sums, _ = self._gradient(learner, experience)
        inputs = self.single_steps(experience.obs, experience.action_mask)
        layers = self.agent.network.layers(learner.policy.params, *inputs)
        found = self.not_finite_outputs(layers, gradient)
        found |= {"loss/value": sums["loss"], "grad/norm": optax.tree.norm(gradient)}
        return {name: x[None, None] for name, x in found.items()}

    def _updated(self, learner: DQNState, gradient: PyTree) -> DQNState:
        """After a step of the optimiser, and of the target network if it is its turn."""
        h = learner.hyperparams
        step, opt_state = optimizer(h.max_grad_norm, h.learning_rate).update(gradient, learner.opt_state)
        params, updates = optax.apply_updates(learner.policy.params, step), learner.updates + 1
        turn = updates % h.target_period.astype(jnp.int32) == 0
        rate = jnp.where(turn, h.target_rate, 0.0)
        return dataclasses.replace(
            learner,
            policy=dataclasses.replace(learner.policy, params=params),
            updates=updates,
            opt_state=opt_state,
            target=jax.tree.map(lambda x, y: losses.moved(x, y, rate), learner.target, params),
        )

    def _gradient(self, learner: DQNState, batch: Transitions) -> tuple[PyTree, dict[str, Array], Array]:
        """(gradient of the mean loss, means over all devices, TD errors float32[N] of this one)."""
        after = self.single_steps(batch.next_obs, batch.next_mask)
        online = self._q(learner, learner.policy.params, after) if self.section.double else None
        following = losses.next_value(self._q(learner, learner.target, after), online)
        total, discount = n_step_return(batch.reward, batch.counts, learner.hyperparams.gamma)
        target = losses.n_step_target(total, discount, batch.terminated, following)
        here, usable = self.single_steps(batch.obs, batch.action_mask), batch.usable

        def loss(params: PyTree) -> tuple[Array, tuple[dict[str, Array], Array]]:
            q = value_of(self._q(learner, params, here), batch.action)
            # Before the square: the gradient of `where` lets a NaN pass.
            error = jnp.where(usable, q - target, 0.0)
            found = (0.5 * batch.weight * jnp.square(error)).sum()
            return found, ({"loss": found, "q": jnp.where(usable, q, 0.0).sum()}, error)

        gradient, (sums, error) = jax.grad(loss, has_aux=True)(learner.policy.params)
        count = usable.sum(dtype=jnp.float32)
        gradient, sums, count = self.axis.psum((gradient, sums, count))
        gradient, sums = jax.tree.map(lambda x: x / jnp.maximum(count, 1.0), (gradient, sums))
        return gradient, sums, error

    def _q(self, learner: DQNState, params: PyTree, inputs: tuple[Any, ...]) -> Array:
        """float32[N, A]."""
        q: Array = self.agent.apply(dataclasses.replace(learner.policy, params=params), *inputs).q[0]
        return q

    def _mean_epsilon(self, learner: DQNState) -> Array:
        """float32[], over all environments."""
        if self.section.exploration == "ladder":
            envs = self.config.env.num_envs
            return ladder(jnp.arange(envs), envs).mean()
        return self.exploration(learner)
