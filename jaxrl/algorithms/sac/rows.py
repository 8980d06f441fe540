"""Rows that SAC learns from, [L, N], and the outputs of its networks on them and on those that follow."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxrl.algorithms.r2d2.losses import sequence_error
from jaxrl.algorithms.replay import SequenceBatch, Transitions, n_step_return
from jaxrl.algorithms.sac.agent import SACAgent
from jaxrl.networks.gaussians import TanhGaussian
from jaxrl.types import Acting, Array, PyTree


class Rows(abc.ABC):
    """A batch from the memory as L steps of N environments.

    Attributes:
      usable: bool[L, N].
      action: float32[L, N, D], before tanh.
      terminated: bool[L, N], True if nothing follows.
      weight: float32[L, N], importance weights.
    """

    usable: Array
    action: Array
    terminated: Array
    weight: Array

    @abc.abstractmethod
    def returns(self, gamma: Array) -> tuple[Array, Array]:
        """float32[L, N]: sums of discounted rewards, and the discount of what follows."""

    @abc.abstractmethod
    def policy(self, actor: PyTree, follows: bool = False) -> TanhGaussian:
        """The policy's distributions [L, N, D], of the rows or of what follows them."""

    @abc.abstractmethod
    def see(self, critic: PyTree, follows: bool = False) -> PyTree:
        """`Critics.see` [L, N, ...], of the rows or of what follows them."""

    @abc.abstractmethod
    def error(self, error: Array) -> Array:
        """float32[N], the memory's feedback from TD errors float32[L, N]."""


class StepRows(Rows):
    """Single transitions: L is 1."""

    def __init__(self, agent: SACAgent, acting: Acting, batch: Transitions) -> None:
        self._agent = agent
        self._acting = acting
        self._batch = batch
        self.usable = batch.usable[None]
        self.action = batch.action[None]
        self.terminated = batch.terminated[None]
        self.weight = batch.weight[None]

    def returns(self, gamma: Array) -> tuple[Array, Array]:
        total, discount = n_step_return(self._batch.reward, self._batch.counts, gamma)
        return total[None], discount[None]

    def policy(self, actor: PyTree, follows: bool = False) -> TanhGaussian:
        acting = dataclasses.replace(self._acting, params=actor)
        obs, carry, reset = self._inputs(follows)
        return self._agent.apply(acting, obs, carry, reset, None).distribution

    def see(self, critic: PyTree, follows: bool = False) -> PyTree:
        return self._agent.critics.see(critic, *self._inputs(follows))[0]

    def error(self, error: Array) -> Array:
        return error[0]

    def _inputs(self, follows: bool) -> tuple[PyTree, PyTree, Array]:
        obs = self._batch.next_obs if follows else self._batch.obs
        reset = jnp.ones_like(self.usable)
        return jax.tree.map(lambda x: x[None], obs), self._agent.initial_carry(reset.shape[1]), reset


@dataclass(frozen=True)
class _Window:
    """Inputs [W, N] of networks, and the carry [N, ...] before them."""

    obs: PyTree
    reset: Array
    carry: PyTree


class SequenceRows(Rows):
    """Sequences, with the carries that acting had before them."""

    def __init__(
        self, agent: SACAgent, acting: Acting, batch: SequenceBatch, burn_in: int, eta: float
    ) -> None:
        """Computes nothing.

        Args:
          agent, acting: the agent that acts, and its parameters.
          batch: from the memory.
          burn_in: rows before those that are learnt from; no gradient enters them.
          eta: of `sequence_error`.
        """
        self._agent = agent
        self._acting = acting
        self._batch = batch
        self._burn_in = burn_in
        self._eta = eta
        self.usable = batch.usable
        self.action = batch.action
        self.terminated = batch.terminated
        self.weight = jnp.broadcast_to(batch.weight[None], batch.usable.shape)

    def returns(self, gamma: Array) -> tuple[Array, Array]:
        of_step = jax.vmap(n_step_return, in_axes=(0, 0, None))
        return of_step(self._batch.reward, self._batch.counts, gamma)

    def policy(self, actor: PyTree, follows: bool = False) -> TanhGaussian:
        acting = dataclasses.replace(self._acting, params=actor)

        def run(part: _Window) -> tuple[TanhGaussian, PyTree]:
            out = self._agent.apply(acting, part.obs, part.carry, part.reset, None)
            return out.distribution, out.carry

        return self._select_rows(self._run(run), follows)

    def see(self, critic: PyTree, follows: bool = False) -> PyTree:
        def run(part: _Window) -> tuple[PyTree, PyTree]:
            return self._agent.critics.see(critic, part.obs, part.carry, part.reset)

        return self._select_rows(self._run(run), follows)

    def error(self, error: Array) -> Array:
        return sequence_error(error, self.usable, self._eta)

    def _run(self, network: Callable[[_Window], tuple[PyTree, PyTree]]) -> PyTree:
        """The output of `network`, which returns it with its carry, on all rows after the burn-in."""
        burnt, rest = self._parts()
        if len(burnt.reset):
            carry = jax.lax.stop_gradient(network(burnt)[1])
            rest = dataclasses.replace(rest, carry=carry)
        return network(rest)[0]

    def _parts(self) -> tuple[_Window, _Window]:
        """The burn-in, and all rows after it."""
        batch = self._batch
        start = self._burn_in
        cut = lambda part: jax.tree.map(lambda x: x[part], (batch.obs, batch.reset))  # noqa: E731
        (obs, reset) = cut(slice(start))
        (later_obs, later_reset) = cut(slice(start, None))
        burnt = _Window(obs=obs, reset=reset, carry=batch.carry)
        return burnt, _Window(obs=later_obs, reset=later_reset, carry=batch.carry)

    def _select_rows(self, tree: PyTree, follows: bool) -> PyTree:
        """Rows [L, N, ...] of [L + K, N, ...]: those that are learnt from, or what follows each of them."""
        length = len(self.usable)
        if not follows:
            return jax.tree.map(lambda x: x[:length], tree)
        steps = self._batch.counts.sum(axis=1, dtype=jnp.int32)
        at = jnp.arange(length)[:, None] + steps
        env = jnp.arange(at.shape[1])[None]
        return jax.tree.map(lambda x: x[at, env], tree)
