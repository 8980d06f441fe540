"""The agent of rollouts: the learner and its teacher side by side; one of them acts, the teacher labels."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.actor_critic import ActorCritic, ActorCriticOutput
from jaxrl.algorithms.agent import Agent
from jaxrl.algorithms.demonstrations import hits
from jaxrl.config import NormalizeConfig
from jaxrl.envs.base import EnvSpec
from jaxrl.networks import Network, NetworkOutput
from jaxrl.types import Acting, Array, PyTree

# Of the carries and the extras of a trajectory.
LEARNER = "learner"
TEACHER = "teacher"
LABEL = "label"
# Keeps the random numbers for who acts apart from the actions'.
_TURNS = 0x5455524E


@flax.struct.dataclass
class Guidance:
    """The part of a teacher in a rollout.

    Attributes:
      beta: float32[], the share of its actions.
      teacher: its policy; None if the environment's solver is the teacher.
    """

    beta: Array
    teacher: Acting | None


@flax.struct.dataclass
class GuidedOutput:
    """The output of learner and teacher for observations [B].

    Attributes:
      carry: of both, by name.
      beta: float32[B], the probability that the teacher acts.
      label: [B, *A], the teacher's best action, as agents store it; None before the solver has given it.
    """

    own: ActorCriticOutput
    carry: dict[str, PyTree]
    beta: Array
    label: Array | None


@dataclass(frozen=True)
class GuidedAgent(Agent):
    """Takes the teacher's best action with probability beta, else one that the learner samples.

    Its extras are `label` [T, B, *A], the teacher's best action; `log_prob` float32[T, B], the learner's of
    that action; and `hit` float32[T, B], whether the learner's best action is the same, or how far it is.

    Attributes:
      asks_solver: True if the environment's solver is the teacher.
    """

    own: ActorCritic
    spec: EnvSpec
    network: Network
    normalize_config: NormalizeConfig
    asks_solver: bool

    @classmethod
    def of(cls, own: ActorCritic, asks_solver: bool) -> GuidedAgent:
        """Beside a learner's agent."""
        return cls(own, own.spec, own.network, own.normalize_config, asks_solver)

    def init(self, key: Array) -> Acting:
        """As `Agent.init`, guided by itself: for shapes."""
        acting = self.own.init(key)
        teacher = None if self.asks_solver else acting
        return dataclasses.replace(acting, exploration=Guidance(jnp.ones((), jnp.float32), teacher))

    def prepare(self, acting: Acting) -> Acting:
        guidance: Guidance = acting.exploration
        if guidance.teacher is not None:
            guidance = dataclasses.replace(guidance, teacher=self.own.prepare(guidance.teacher))
        return dataclasses.replace(self.own.prepare(acting), exploration=guidance)

    def initial_carry(self, n: int) -> PyTree:
        teacher = None if self.asks_solver else self.own.initial_carry(n)
        return {LEARNER: self.own.initial_carry(n), TEACHER: teacher}

    def forward(
        self, acting: Acting, obs: PyTree, carry: PyTree, reset: Array, action_mask: Array | None
    ) -> GuidedOutput:
        guidance: Guidance = acting.exploration
        own = self.own.forward(acting, obs, carry[LEARNER], reset, action_mask)
        after = None
        label = None
        if guidance.teacher is not None:
            said = self.own.forward(guidance.teacher, obs, carry[TEACHER], reset, action_mask)
            after = said.carry
            label = self.own.greedy(said)
        beta = jnp.broadcast_to(guidance.beta, reset.shape)
        return GuidedOutput(own, {LEARNER: own.carry, TEACHER: after}, beta, label)

    def add_solution(self, out: GuidedOutput, solution: Array) -> GuidedOutput:
        return dataclasses.replace(out, label=self.own.head.from_env(solution))

    def draw_noise(self, key: Array, shape: tuple[int, ...], index: Array | int = 0) -> PyTree:
        turns = jax.random.uniform(jax.random.fold_in(key, _TURNS), shape, jnp.float32)
        return {"own": self.own.draw_noise(key, shape, index), "turns": turns}

    def choose(
        self, out: GuidedOutput, noise: PyTree, few_kernels: bool = False
    ) -> tuple[Array, dict[str, Array]]:
        label = out.label
        assert label is not None
        action, _ = self.own.choose(out.own, noise["own"], few_kernels)
        is_taught = (noise["turns"] < out.beta).reshape(-1, *[1] * (action.ndim - 1))
        extras = {
            LABEL: label,
            "log_prob": out.own.distribution.log_prob(label),
            "hit": hits(self.own, self.own.greedy(out.own), label),
        }
        return jnp.where(is_taught, label, action), extras

    def finish(self, extras: dict[str, Array], has_choice: Array) -> dict[str, Array]:
        return extras | {"log_prob": jnp.where(has_choice, extras["log_prob"], jnp.nan)}

    def bootstrap(self, out: GuidedOutput) -> None:
        return None

    def greedy(self, out: GuidedOutput) -> Array:
        return self.own.greedy(out.own)

    def output(self, acting: Acting, out: NetworkOutput) -> ActorCriticOutput:
        return self.own.output(acting, out)

    def init_params(self, key: Array) -> PyTree:
        return self.own.init_params(key)

    def to_env(self, action: Array) -> Array:
        return self.own.to_env(action)

    def facts(self, out: GuidedOutput) -> tuple[Array, dict[str, Array]]:
        return self.own.facts(out.own)

    def architecture(self) -> dict[str, Any] | None:
        return self.own.architecture()

    def acting_params(self, params: PyTree) -> PyTree:
        return self.own.acting_params(params)
