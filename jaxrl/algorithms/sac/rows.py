"""Rows that SAC learns from, [L, N], the outputs of its networks on them and what follows, and its losses.

Haarnoja et al. 2018, "Soft actor-critic algorithms and applications" (arXiv:1812.05905).
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.algorithms.replay import SequenceBatch, Transitions, n_step_return, sequence_error
from jaxrl.algorithms.replay_algorithm import after_burn_in
from jaxrl.algorithms.sac.agent import SACAgent
from jaxrl.networks.gaussians import TanhGaussian
from jaxrl.types import Acting, Array, PyTree

# (obs [W, N, ...], carry [N, ...] before them, reset bool[W, N]) -> (output [W, N, ...], carry after them).
_Run = Callable[[PyTree, PyTree, Array], tuple[PyTree, PyTree]]


@dataclass(frozen=True)
class Rows(abc.ABC):
    """A batch from the memory as L steps of N environments.

    Attributes:
      acting: parameters of the agent when it acted.
      usable: bool[L, N].
      action: float32[L, N, D], before tanh.
      terminated: bool[L, N], True if nothing follows.
      weight: float32[L, N], importance weights.
    """

    agent: SACAgent
    acting: Acting
    batch: Any
    usable: Array
    action: Array
    terminated: Array
    weight: Array

    @abc.abstractmethod
    def returns(self, gamma: Array) -> tuple[Array, Array]:
        """float32[L, N]: sums of discounted rewards, and the discount of what follows."""

    @abc.abstractmethod
    def error(self, error: Array) -> Array:
        """float32[N], the memory's feedback from TD errors float32[L, N]."""

    @abc.abstractmethod
    def over(self, run: _Run, follows: bool) -> PyTree:
        """The output [L, N, ...] of a network on the rows, or on what follows them."""

    def policy(self, actor: PyTree, follows: bool = False) -> TanhGaussian:
        """The policy's distributions [L, N, D], of the rows or of what follows them."""
        acting = dataclasses.replace(self.acting, params=actor)

        def run(obs: PyTree, carry: PyTree, reset: Array) -> tuple[TanhGaussian, PyTree]:
            out = self.agent.apply(acting, obs, carry, reset, None)
            return out.distribution, out.carry

        return self.over(run, follows)

    def see(self, critic: PyTree, follows: bool = False) -> PyTree:
        """`Critics.see` [L, N, ...], of the rows or of what follows them."""
        return self.over(functools.partial(self.agent.critics.see, critic), follows)


@dataclass(frozen=True)
class StepRows(Rows):
    """Single transitions: L is 1."""

    @classmethod
    def of(cls, agent: SACAgent, acting: Acting, batch: Transitions) -> StepRows:
        """The rows of a batch."""
        facts = (batch.usable, batch.action, batch.terminated, batch.weight)
        return cls(agent, acting, batch, *(x[None] for x in facts))

    def returns(self, gamma: Array) -> tuple[Array, Array]:
        total, discount = n_step_return(self.batch.reward, self.batch.counts, gamma)
        return total[None], discount[None]

    def error(self, error: Array) -> Array:
        return error[0]

    def over(self, run: _Run, follows: bool) -> PyTree:
        obs = self.batch.next_obs if follows else self.batch.obs
        reset = jnp.ones_like(self.usable)
        return run(jax.tree.map(lambda x: x[None], obs), self.agent.initial_carry(reset.shape[1]), reset)[0]


@dataclass(frozen=True)
class SequenceRows(Rows):
    """Sequences, with the carries that acting had before them.

    Attributes:
      burn_in: rows before those that are learnt from; no gradient enters them.
      eta: of `sequence_error`.
    """

    burn_in: int
    eta: float

    @classmethod
    def of(
        cls, agent: SACAgent, acting: Acting, batch: SequenceBatch, burn_in: int, eta: float
    ) -> SequenceRows:
        """The rows of a batch."""
        weight = jnp.broadcast_to(batch.weight[None], batch.usable.shape)
        facts = (batch.usable, batch.action, batch.terminated, weight)
        return cls(agent, acting, batch, *facts, burn_in, eta)

    def returns(self, gamma: Array) -> tuple[Array, Array]:
        return jax.vmap(n_step_return, in_axes=(0, 0, None))(self.batch.reward, self.batch.counts, gamma)

    def error(self, error: Array) -> Array:
        return sequence_error(error, self.usable, self.eta)

    def over(self, run: _Run, follows: bool) -> PyTree:
        (obs, reset), carry = after_burn_in(
            lambda inputs, carry: run(inputs[0], carry, inputs[1])[1],
            (self.batch.obs, self.batch.reset),
            self.batch.carry,
            self.burn_in,
        )
        found = run(obs, carry, reset)[0]
        length = len(self.usable)
        if not follows:
            return jax.tree.map(lambda x: x[:length], found)
        steps = self.batch.counts.sum(axis=1, dtype=jnp.int32)
        at = jnp.arange(length)[:, None] + steps
        env = jnp.arange(at.shape[1])[None]
        return jax.tree.map(lambda x: x[at, env], found)


def soft_value(q: Array, log_prob: Array, temperature: Array | float) -> Array:
    """float32[...], min_i Q_i(s, a) - alpha log pi(a | s), of an action a of the policy (eq. 3, two critics).

    `q` is float32[2, ...], `temperature` alpha.
    """
    return q.min(axis=0) - temperature * log_prob


def policy_loss(q: Array, log_prob: Array, temperature: Array | float) -> Array:
    """float32[...], alpha log pi(a | s) - min_i Q_i(s, a) (eq. 7)."""
    return -soft_value(q, log_prob, temperature)


def temperature_loss(log_temperature: Array, log_prob: Array, target_entropy: float) -> Array:
    """float32[...], -log alpha (log pi(a | s) + H), whose gradient has the sign of eq. 18's.

    The logarithm in place of alpha, as in the authors' own code: steps are relative to its size.
    """
    return -log_temperature * (log_prob + target_entropy)


def critic_loss(q: Array, target: Array, weight: Array, usable: Array) -> tuple[Array, Array]:
    """(half the squared errors of both critics, weighted; their mean absolute error), float32[...].

    `q` is float32[2, ...], `target` and `weight`, importance weights, are float32[...]; where not `usable`,
    bool[...], both results are 0.
    """
    # Before the square: the gradient of `where` lets a NaN pass.
    error = jnp.where(usable[None], q - target[None], 0.0)
    return 0.5 * weight * jnp.square(error).sum(axis=0), jnp.abs(error).mean(axis=0)
