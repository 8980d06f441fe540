"""SAC: soft actor-critic from a replay memory, for continuous actions.

Haarnoja et al. 2018, "Soft actor-critic algorithms and applications" (arXiv:1812.05905): two critics, a
target of each, and a learnt temperature.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.base import Learned
from jaxrl.algorithms.optimizer import Gradient, descend, optimizer
from jaxrl.algorithms.q_values import n_step_target, polyak_update
from jaxrl.algorithms.replay import SequenceBatch, SequencePlan, Transitions, hindsight_plan
from jaxrl.algorithms.replay_algorithm import ReplayAlgorithm, usable_sum
from jaxrl.algorithms.sac.agent import CRITIC, SACAgent
from jaxrl.algorithms.sac.rows import (
    Rows,
    SequenceRows,
    StepRows,
    critic_loss,
    policy_loss,
    soft_value,
    temperature_loss,
)
from jaxrl.config import Config, ConfigError, SACConfig
from jaxrl.envs.base import Box, EnvSpec
from jaxrl.metrics import tracing
from jaxrl.metrics.reduction import Last, Mean, Metric
from jaxrl.networks.gaussians import TanhGaussian
from jaxrl.types import Array, LearnerState, PyTree

_FROM_ACTOR, _FROM_NEXT = 0x534143, 0x534144  # keys of an update's two samples of noise


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
      opt_state: for the policy, the critics and the temperature.
      target: parameters of the target critics.
      log_temperature: float32[], log alpha.
    """

    opt_state: dict[str, PyTree]
    target: PyTree
    log_temperature: Array


@dataclass(frozen=True)
class SAC(ReplayAlgorithm):
    """On each batch the critics learn, then the policy from these, and the temperature from the policy."""

    agent: SACAgent

    name: ClassVar = "sac"
    config_section: ClassVar = SACConfig
    hyperparams_type: ClassVar = SACHyperparams
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
        hindsight_plan(config, spec)  # raises what is wrong with it
        section = config.learner_as(SACConfig)
        core = config.network.core
        if (core == "none") != (section.trace_length == 0):
            rule = "0: a network without a core" if core == "none" else "above 0: a recurrent network"
            raise ConfigError(
                f"`sac.trace_length` (={section.trace_length}) must be {rule} learns from "
                f"{'single steps' if core == 'none' else 'sequences'}, and `network.core` is {core!r}"
            )
        return SACAgent.build(config.network, spec, config.normalize)

    @property
    def section(self) -> SACConfig:
        return self.config.learner_as(SACConfig)

    @property
    def sequences(self) -> SequencePlan | None:
        section = self.section
        if not section.trace_length:
            return None
        return SequencePlan(burn_in=section.burn_in, length=section.trace_length, interval=section.interval)

    @property
    def target_entropy(self) -> float:
        """In nats, of actions in [-1, 1]."""
        space = self.agent.spec.action_space
        given = self.section.target_entropy
        assert isinstance(space, Box)
        return -float(space.shape[0]) if given is None else given

    @property
    def metrics(self) -> Mapping[str, type[Metric]]:
        own = ("q", "entropy", "temperature", "reward", "log_prob", "transitions")
        return self.declared(("loss/value", "loss/policy", "grad/norm", *(f"sac/{x}" for x in own)))

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

    def scheduled_values(self, learner: LearnerState) -> dict[str, float]:
        return {}

    def learn(self, learner: SACState, experience: Transitions | SequenceBatch, key: Array) -> Learned:
        with tracing.phase("update"):
            after, gradient, sums, error = self._update(learner, experience, key)
        means = {
            "loss/value": sums["critic"],
            "loss/policy": sums["policy"],
            "grad/norm": gradient.norm,
            "sac/q": sums["q"],
            "sac/entropy": -sums["log_prob"],
        }
        metrics = self.means_if(experience.ready, means, gradient) | self.latest(experience, "log_prob")
        metrics |= {
            self.updates_metric: Last(after.updates),
            "sac/temperature": Mean.of(jnp.exp(after.log_temperature)),
        }
        return Learned(after, experience.feedback(error), metrics)

    def inspect(
        self, learner: SACState, experience: Transitions | SequenceBatch, key: Array
    ) -> dict[str, Array]:
        _, gradient, sums, _ = self._update(learner, experience, key)
        if isinstance(experience, SequenceBatch):
            obs = experience.obs
            carry = experience.carry
            reset = experience.reset
        else:
            obs, carry, reset, _ = self.single_steps(experience.obs, None)
        inputs = obs, self.agent.policy_carry(carry), reset, None
        layers = self.agent.network.layers(_parts(learner.policy.params)[0], *inputs)
        means = {"loss/value": sums["critic"], "loss/policy": sums["policy"], "grad/norm": gradient.norm}
        return self.inspected(layers, gradient, means)

    def _update(
        self, learner: SACState, batch: Transitions | SequenceBatch, key: Array
    ) -> tuple[SACState, Gradient, dict[str, Array], Array]:
        """(state, as it was if not enough is kept, gradient, means, TD errors float32[N] of this device)."""
        actor, critic = _parts(learner.policy.params)
        opt_state = dict(learner.opt_state)
        h = learner.hyperparams
        learns = self.section.learn_temperature
        # Of a fixed one the hyperparameter counts, which a sweep, a resume or `set` may have changed.
        log_temperature = learner.log_temperature if learns else jnp.log(h.temperature)
        temperature = jnp.exp(log_temperature)
        rows = self._rows(learner, batch)
        critics = self.agent.critics

        def step(part: str, params: PyTree, gradient: Gradient, rate: Array) -> PyTree:
            state = opt_state[part]
            params, opt_state[part] = descend(params, gradient, state, h.max_grad_norm, rate, batch.ready)
            return params

        target = self._target(learner, actor, rows, temperature, self._noise(rows, key, _FROM_NEXT))
        action = jnp.tanh(rows.action)

        def of_critics(critic: PyTree) -> tuple[Array, tuple[dict[str, Array], Array]]:
            q = critics.values(critic, rows.see(critic), action)
            loss, error = critic_loss(q, target, rows.weight, rows.usable)
            return loss.sum(), ({"critic": loss.sum(), "q": usable_sum(q.mean(axis=0), rows.usable)}, error)

        by_critic, sums, error = self.mean_gradient(of_critics, critic, rows.usable)
        critic = step("critic", critic, by_critic, h.critic_rate)

        noise = self._noise(rows, key, _FROM_ACTOR)
        seen = rows.see(critic)

        def of_policy(actor: PyTree) -> tuple[Array, tuple[dict[str, Array], Array]]:
            chosen, log_prob = _choose(rows.policy(actor), noise)
            q = critics.values(critic, seen, jnp.tanh(chosen))
            loss = usable_sum(policy_loss(q, log_prob, temperature), rows.usable)
            return loss, ({"policy": loss, "log_prob": usable_sum(log_prob, rows.usable)}, log_prob)

        by_actor, found, _ = self.mean_gradient(of_policy, actor, rows.usable)
        actor = step("policy", actor, by_actor, h.learning_rate)
        if learns:
            by_temperature = jax.grad(temperature_loss)(
                log_temperature, found["log_prob"], self.target_entropy
            )
            by_temperature = Gradient.of(by_temperature, jnp.float32(1.0))
            log_temperature = step("temperature", log_temperature, by_temperature, h.temperature_rate)
        after = dataclasses.replace(
            learner,
            policy=dataclasses.replace(learner.policy, params={**actor, CRITIC: critic}),
            updates=learner.updates + batch.ready.astype(jnp.int32),
            opt_state=opt_state,
            target=jax.tree.map(
                lambda x, y: jnp.where(batch.ready, polyak_update(x, y, h.target_rate), x),
                learner.target,
                critic,
            ),
            log_temperature=jnp.where(batch.ready, log_temperature, learner.log_temperature),
        )
        both = {**by_actor.of_sum, CRITIC: by_critic.of_sum}
        gradient = Gradient(both, by_actor.scale, jnp.hypot(by_actor.norm, by_critic.norm))
        return after, gradient, {**sums, **found}, rows.error(error)

    def _rows(self, learner: SACState, batch: Transitions | SequenceBatch) -> Rows:
        if isinstance(batch, SequenceBatch):
            burn_in = self.section.burn_in
            eta = self.section.priority_eta
            return SequenceRows.of(self.agent, learner.policy, batch, burn_in, eta)
        return StepRows.of(self.agent, learner.policy, batch)

    def _target(
        self, learner: SACState, actor: PyTree, rows: Rows, temperature: Array, noise: Array
    ) -> Array:
        """float32[L, N], the targets of the critics."""
        following, log_prob = _choose(rows.policy(actor, follows=True), noise)
        seen = rows.see(learner.target, follows=True)
        q = self.agent.critics.values(learner.target, seen, jnp.tanh(following))
        value = soft_value(q, log_prob, temperature)
        total, discount = rows.returns(learner.hyperparams.gamma)
        return n_step_target(total, discount, rows.terminated, value)

    def _noise(self, rows: Rows, key: Array, draw: int) -> Array:
        """float32[L, N, D], normal: this device's part of noise that is the same on any number of them."""
        (length, count, size) = rows.action.shape
        total = self.section.batch_size
        noise = jax.random.normal(jax.random.fold_in(key, draw), (total, length, size), jnp.float32)
        here = jax.lax.dynamic_slice_in_dim(noise, self.axis.index() * count, count)
        return here.swapaxes(0, 1)


def _choose(distribution: TanhGaussian, noise: Array) -> tuple[Array, Array]:
    """(action before tanh float32[L, N, D], its log-probability float32[L, N])."""
    action = distribution.sample(noise)
    return action, distribution.log_prob(action)


def _parts(params: PyTree) -> tuple[PyTree, PyTree]:
    """(parameters of the policy, of the critics)."""
    return {name: x for name, x in params.items() if name != CRITIC}, params[CRITIC]
