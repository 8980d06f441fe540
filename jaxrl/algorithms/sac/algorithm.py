"""SAC: soft actor-critic from a replay memory, for continuous actions.

Haarnoja et al. 2018, "Soft actor-critic algorithms and applications" (arXiv:1812.05905): two critics, a
target of each, and a learnt temperature.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.base import Learned
from jaxrl.algorithms.hyperparams import read_hyperparams
from jaxrl.algorithms.optimizer import descend, optimizer
from jaxrl.algorithms.parameters import layer_norms
from jaxrl.algorithms.q_targets import moved, n_step_target
from jaxrl.algorithms.replay import Transitions, n_step_return
from jaxrl.algorithms.replay_algorithm import ReplayAlgorithm
from jaxrl.algorithms.sac import losses
from jaxrl.algorithms.sac.agent import CRITIC, SACAgent
from jaxrl.config import Config, SACConfig
from jaxrl.envs.base import Box, EnvSpec
from jaxrl.metrics import tracing
from jaxrl.metrics.reduction import Last, Mean, Metric, Metrics
from jaxrl.networks.gaussians import TanhGaussian
from jaxrl.types import Array, Axis, LearnerState, PyTree

_FROM_ACTOR, _FROM_NEXT = 0x534143, 0x534144  # keys of the two draws of an update


@flax.struct.dataclass
class SACHyperparams:
    """Numeric hyperparameters: float32 scalars and pytree leaves, so that a sweep can vmap over them."""

    learning_rate: Array
    critic_rate: Array
    temperature_rate: Array
    max_grad_norm: Array
    gamma: Array
    target_rate: Array
    temperature: Array


@flax.struct.dataclass
class SACState(LearnerState):
    """The state of SAC.

    Attributes:
      opt_state: of Adam, for the policy, the critics and the temperature.
      target: parameters of the target critics.
      log_temperature: float32[], log alpha.
    """

    opt_state: dict[str, PyTree]
    target: PyTree
    log_temperature: Array


@dataclass(frozen=True)
class _Gradient:
    """The gradient of an update, of all parameters and over all devices.

    Attributes:
      total: of the summed losses.
      scale: float32[], what makes it that of their means.
      norm: float32[], of the means' gradient.
    """

    total: PyTree
    scale: Array
    norm: Array


@dataclass(frozen=True)
class SAC(ReplayAlgorithm):
    """On each draw the critics learn, then the policy from these, and the temperature from the policy."""

    config: Config
    agent: SACAgent
    axis: Axis

    name: ClassVar = "sac"
    config_section: ClassVar = SACConfig
    state_type: ClassVar = SACState
    offers: ClassVar = frozenset({"evaluate.modes"})
    watched: ClassVar = ("loss/value", "loss/policy", "grad/norm", "sac/reward", "sac/log_prob")
    highlights: ClassVar = (
        ("loss/value", "value loss"),
        ("sac/q", "Q-value"),
        ("sac/entropy", "entropy"),
        ("sac/temperature", "temperature"),
    )

    @classmethod
    def build_agent(cls, config: Config, spec: EnvSpec) -> SACAgent:
        cls.require_goals(config, spec)
        cls.require_memoryless(config, "ppo")
        return SACAgent.build(config.network, spec, config.normalize)

    @classmethod
    def hyperparameters(cls, config: Config) -> SACHyperparams:
        return read_hyperparams(SACHyperparams, config.learner)

    @property
    def section(self) -> SACConfig:
        assert isinstance(self.config.learner, SACConfig)
        return self.config.learner

    @property
    def target_entropy(self) -> float:
        """In nats, of actions in [-1, 1]."""
        space, given = self.agent.spec.action_space, self.section.target_entropy
        assert isinstance(space, Box)
        return -float(space.shape[0]) if given is None else given

    @property
    def metrics(self) -> Mapping[str, type[Metric]]:
        own = ("q", "entropy", "temperature", "reward", "log_prob")
        names = ("loss/value", "loss/policy", "grad/norm", *(f"sac/{x}" for x in own))
        declared: dict[str, type[Metric]] = {**dict.fromkeys(names, Mean), self.updates_metric: Last}
        if self.config.log.layers:
            params = jax.eval_shape(self.agent.init_params, jax.random.key(0))
            declared |= dict.fromkeys(jax.eval_shape(layer_norms, params), Mean)
        return declared

    def init(self, key: Array, hyperparams: SACHyperparams) -> SACState:
        policy = self.agent.init(key)
        actor, critic = _parts(policy.params)
        log_temperature = jnp.log(hyperparams.temperature)
        adam = optimizer(hyperparams.max_grad_norm, 0.0)
        return SACState(
            policy=policy,
            hyperparams=hyperparams,
            updates=jnp.zeros((), jnp.int32),
            opt_state={
                "policy": adam.init(actor),
                "critic": adam.init(critic),
                "temperature": adam.init(log_temperature),
            },
            # Not the same arrays: all of the state is donated.
            target=jax.tree.map(jnp.copy, critic),
            log_temperature=log_temperature,
        )

    def exploration(self, learner: SACState) -> Array:
        """float32[], 1 before the first update: actions are uniform."""
        return (learner.updates == 0).astype(jnp.float32)

    def scheduled(self, learner: LearnerState) -> dict[str, float]:
        return {}

    def learn(self, learner: SACState, experience: Transitions, key: Array) -> Learned:
        with tracing.phase("update"):
            after, gradient, sums, error = self._update(learner, experience, key)
        # Not a branch: under `vmap` both of its sides would be computed.
        after = jax.tree.map(lambda x, y: jnp.where(experience.ready, y, x), learner, after)
        latest, made = self.latest(experience), experience.ready.astype(jnp.float32)
        metrics: Metrics = {
            "loss/value": Mean(sums["critic"] * made, made),
            "loss/policy": Mean(sums["policy"] * made, made),
            "grad/norm": Mean(gradient.norm * made, made),
            "sac/q": Mean(sums["q"] * made, made),
            "sac/entropy": Mean(-sums["log_prob"] * made, made),
            "sac/temperature": Mean.of(jnp.exp(after.log_temperature)),
            "sac/reward": Mean.of(latest["reward"]),
            "sac/log_prob": Mean.of(latest["noted"]),
            self.updates_metric: Last(after.updates),
        }
        if self.config.log.layers:
            norms = layer_norms(gradient.total)
            metrics |= {name: Mean(x * gradient.scale * made, made) for name, x in norms.items()}
        return Learned(after, experience.feedback(error), metrics)

    def inspect(self, learner: SACState, experience: Transitions, key: Array) -> dict[str, Array]:
        _, gradient, sums, _ = self._update(learner, experience, key)
        inputs = self.single_steps(experience.obs, None)
        layers = self.agent.network.layers(_parts(learner.policy.params)[0], *inputs)
        found = self.not_finite_outputs(layers, gradient.total)
        found |= {"loss/value": sums["critic"], "loss/policy": sums["policy"], "grad/norm": gradient.norm}
        return {name: x[None, None] for name, x in found.items()}

    def _update(
        self, learner: SACState, batch: Transitions, key: Array
    ) -> tuple[SACState, _Gradient, dict[str, Array], Array]:
        """(state, gradient, means over all devices, TD errors float32[N] of this one)."""
        actor, critic = _parts(learner.policy.params)
        temperature = jnp.exp(learner.log_temperature)
        opt_state, h = dict(learner.opt_state), learner.hyperparams
        # Of all devices. A factor of the steps, so that no gradient is divided by it.
        scale = 1.0 / jnp.maximum(self.axis.psum(batch.usable.sum(dtype=jnp.float32)), 1.0)

        target = self._target(learner, actor, batch, temperature, self._noise(batch, key, _FROM_NEXT))
        action = jnp.tanh(batch.action)

        def of_critics(critic: PyTree) -> tuple[Array, tuple[dict[str, Array], Array]]:
            q = self.agent.q_values(critic, batch.obs, action)
            loss, error = losses.critic_loss(q, target, batch.weight, batch.usable)
            return loss.sum(), ({"critic": loss.sum(), "q": _sum(q.mean(axis=0), batch.usable)}, error)

        by_critic, sums, error = self._gradient(of_critics, critic, scale)
        critic, opt_state["critic"], critic_norm = descend(
            critic, by_critic, opt_state["critic"], h.max_grad_norm, h.critic_rate, scale
        )

        noise = self._noise(batch, key, _FROM_ACTOR)

        def of_policy(actor: PyTree) -> tuple[Array, tuple[dict[str, Array], Array]]:
            chosen, log_prob = self._choose(learner, actor, batch.obs, noise)
            q = self.agent.q_values(critic, batch.obs, jnp.tanh(chosen))
            loss = _sum(losses.policy_loss(q, log_prob, temperature), batch.usable)
            return loss, ({"policy": loss, "log_prob": _sum(log_prob, batch.usable)}, log_prob)

        by_actor, found, _ = self._gradient(of_policy, actor, scale)
        actor, opt_state["policy"], actor_norm = descend(
            actor, by_actor, opt_state["policy"], h.max_grad_norm, h.learning_rate, scale
        )
        log_temperature = learner.log_temperature
        if self.section.learn_temperature:
            by_temperature = jax.grad(losses.temperature_loss)(
                log_temperature, found["log_prob"], self.target_entropy
            )
            log_temperature, opt_state["temperature"], _ = descend(
                log_temperature,
                by_temperature,
                opt_state["temperature"],
                h.max_grad_norm,
                h.temperature_rate,
                jnp.float32(1.0),
            )
        after = dataclasses.replace(
            learner,
            policy=dataclasses.replace(learner.policy, params={**actor, CRITIC: critic}),
            updates=learner.updates + 1,
            opt_state=opt_state,
            target=jax.tree.map(lambda x, y: moved(x, y, h.target_rate), learner.target, critic),
            log_temperature=log_temperature,
        )
        gradient = _Gradient({**by_actor, CRITIC: by_critic}, scale, jnp.hypot(actor_norm, critic_norm))
        return after, gradient, sums | found, error

    def _gradient(
        self, loss: Callable[[PyTree], Any], params: PyTree, scale: Array
    ) -> tuple[PyTree, dict[str, Array], Array]:
        """(gradient of the loss and means of its sums, both over all devices, the rows of this device)."""
        gradient, (sums, rows) = jax.grad(loss, has_aux=True)(params)
        gradient, sums = self.axis.psum((gradient, sums))
        return gradient, {name: x * scale for name, x in sums.items()}, rows

    def _target(
        self, learner: SACState, actor: PyTree, batch: Transitions, temperature: Array, noise: Array
    ) -> Array:
        """float32[N], what the critics are to say."""
        following, log_prob = self._choose(learner, actor, batch.next_obs, noise)
        q = self.agent.q_values(learner.target, batch.next_obs, jnp.tanh(following))
        value = losses.soft_value(q, log_prob, temperature)
        total, discount = n_step_return(batch.reward, batch.counts, learner.hyperparams.gamma)
        return n_step_target(total, discount, batch.terminated, value)

    def _choose(self, learner: SACState, actor: PyTree, obs: PyTree, noise: Array) -> tuple[Array, Array]:
        """(action before tanh float32[N, D], its log-probability float32[N])."""
        acting = dataclasses.replace(learner.policy, params=actor)
        out = self.agent.apply(acting, *self.single_steps(obs, None))
        distribution: TanhGaussian = jax.tree.map(lambda x: x[0], out.distribution)
        action = distribution.sample(noise)
        return action, distribution.log_prob(action)

    def _noise(self, batch: Transitions, key: Array, draw: int) -> Array:
        """float32[N, D], normal: this device's rows of a draw that is the same on any number of devices."""
        (count, size), total = batch.action.shape, self.section.batch_size
        noise = jax.random.normal(jax.random.fold_in(key, draw), (total, size), jnp.float32)
        return jax.lax.dynamic_slice_in_dim(noise, self.axis.index() * count, count)


def _parts(params: PyTree) -> tuple[PyTree, PyTree]:
    """(parameters of the policy, of the critics)."""
    return {name: x for name, x in params.items() if name != CRITIC}, params[CRITIC]


def _sum(x: Array, usable: Array) -> Array:
    return jnp.where(usable, x, 0.0).sum()
