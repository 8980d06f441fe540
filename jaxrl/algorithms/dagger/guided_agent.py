"""The agent of rollouts: the learner and its teacher side by side; one of them acts, the teacher labels."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, fields

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.actor_critic import ActorCritic, ActorCriticOutput
from jaxrl.algorithms.demonstrations import hits
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
class GuidedOutput(ActorCriticOutput):
    """The output of learner and teacher for observations [B]; distribution and value are the learner's.

    Attributes:
      carry: of both, by name.
      beta: float32[B], the probability that the teacher acts.
      label: [B, *A], the teacher's best action, as agents store it; None before the solver has given it.
    """

    beta: Array
    label: Array | None


@dataclass(frozen=True)
class GuidedAgent(ActorCritic):
    """Takes the teacher's best action with probability beta, else one that the learner samples.

    Its extras are `label` [T, B, *A], the teacher's best action; `log_prob` float32[T, B], the learner's of
    that action; and `hit` float32[T, B], whether the learner's best action is the same, or how far it is.

    Attributes:
      asks_solver: True if the environment's solver is the teacher.
    """

    asks_solver: bool = False

    @classmethod
    def of(cls, own: ActorCritic, asks_solver: bool) -> GuidedAgent:
        """Beside a learner's agent."""
        return cls(**{field.name: getattr(own, field.name) for field in fields(own)}, asks_solver=asks_solver)

    def init(self, key: Array) -> Acting:
        """As `Agent.init`, guided by itself: for shapes."""
        acting = super().init(key)
        teacher = None if self.asks_solver else acting
        return dataclasses.replace(acting, exploration=Guidance(jnp.ones((), jnp.float32), teacher))

    def prepare(self, acting: Acting) -> Acting:
        guidance: Guidance = acting.exploration
        if guidance.teacher is not None:
            guidance = dataclasses.replace(guidance, teacher=super().prepare(guidance.teacher))
        return dataclasses.replace(super().prepare(acting), exploration=guidance)

    def initial_carry(self, n: int) -> PyTree:
        teacher = None if self.asks_solver else super().initial_carry(n)
        return {LEARNER: super().initial_carry(n), TEACHER: teacher}

    def forward(
        self, acting: Acting, obs: PyTree, carry: PyTree, reset: Array, action_mask: Array | None
    ) -> GuidedOutput:
        guidance: Guidance = acting.exploration
        own: ActorCriticOutput = super().forward(acting, obs, carry[LEARNER], reset, action_mask)
        after = None
        label = None
        if guidance.teacher is not None:
            said = super().forward(guidance.teacher, obs, carry[TEACHER], reset, action_mask)
            after = said.carry
            label = self.greedy(said)
        return GuidedOutput(
            distribution=own.distribution,
            value=own.value,
            carry={LEARNER: own.carry, TEACHER: after},
            features=own.features,
            beta=jnp.broadcast_to(guidance.beta, reset.shape),
            label=label,
        )

    def add_solution(self, out: GuidedOutput, solution: Array) -> GuidedOutput:
        return dataclasses.replace(out, label=self.head.from_env(solution))

    def draw_noise(self, key: Array, shape: tuple[int, ...], index: Array | int = 0) -> PyTree:
        turns = jax.random.uniform(jax.random.fold_in(key, _TURNS), shape, jnp.float32)
        return {"own": super().draw_noise(key, shape, index), "turns": turns}

    def choose(
        self, out: ActorCriticOutput, noise: PyTree, few_kernels: bool = False
    ) -> tuple[Array, dict[str, Array]]:
        assert isinstance(out, GuidedOutput)
        label = out.label
        assert label is not None
        action, _ = super().choose(out, noise["own"], few_kernels)
        is_taught = (noise["turns"] < out.beta).reshape(-1, *[1] * (action.ndim - 1))
        extras = {
            LABEL: label,
            "log_prob": out.distribution.log_prob(label),
            "hit": hits(self, self.greedy(out), label),
        }
        return jnp.where(is_taught, label, action), extras

    def bootstrap(self, out: ActorCriticOutput) -> None:
        return None
