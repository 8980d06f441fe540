"""Agents: a network, the normalisation of its observations, and the choice of actions.

An algorithm builds its agent. Collectors, evaluators, suites, videos, export and serving use the agent and
never build their own network.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.config import ConfigError, NormalizeConfig
from jaxrl.envs.base import Box, Dict, EnvSpec, Space, zeros
from jaxrl.envs.mixture import task_of
from jaxrl.networks import Network, NetworkOutput, normalizer
from jaxrl.networks.graphs import is_graph
from jaxrl.types import Acting, Array, PyTree


class Agent(abc.ABC):
    """Pure functions that act in one environment and are trained by one algorithm.

    Attributes:
      description: of the network, in words: `mlp 128, lstm 128, categorical`.
      samples: True if `choose` without exploration is random. Otherwise there is nothing to sample, and
        evaluations play the best actions alone.
      needs_final_observations: True if a trajectory must hold the last observation of each episode, as a row
        that is not `valid`. Environments on the host always give them so.
      asks_solver: True if it gets the environment's best action (`add_solution`) before it chooses one.
      rescaled: True if its values are not in units of reward, as where R2D2 rescales its targets.
    """

    spec: EnvSpec
    network: Network
    normalize_config: NormalizeConfig
    description: str
    samples: bool = True
    needs_final_observations: bool = False
    asks_solver: bool = False
    rescaled: bool = False

    @abc.abstractmethod
    def output(self, acting: Acting, out: NetworkOutput) -> Any:
        """The output of an agent, a pytree with the `carry` after the last step; each family has a class."""

    def init_params(self, key: Array) -> PyTree:
        """Fresh parameters, float32. May be overridden, by agents that have others beside the network's."""
        return self.network.init(key)

    @abc.abstractmethod
    def draw_noise(self, key: Array, shape: tuple[int, ...], index: Array | int = 0) -> PyTree:
        """Noise for `choose`, leaves [*shape, ...], from the key of one environment.

        `index` is the environment's, over all devices, for an exploration that differs between environments.
        """

    @abc.abstractmethod
    def choose(self, out: Any, noise: PyTree, few_kernels: bool = False) -> tuple[Array, PyTree]:
        """(action [B, *A], the extras of a `Trajectory` at this step [B, ...]).

        Args:
          out: of `forward`, for [B] observations.
          noise: of `draw_noise`, [B, ...].
          few_kernels: in a form that is fewer kernels on a GPU, with the same values up to rounding.
        """

    @abc.abstractmethod
    def greedy(self, out: Any) -> Array:
        """The best action [B, *A], without exploration."""

    @abc.abstractmethod
    def bootstrap(self, out: Any) -> PyTree:
        """The estimate of the rest of an episode that was cut off, such as its value: a tree of [B, ...].

        None if the algorithm needs none; then no final observation is looked at.
        """

    @abc.abstractmethod
    def finish(self, extras: PyTree, has_choice: Array) -> PyTree:
        """The extras of `choose` [T, B, ...] of a rollout whose actions were masked.

        `has_choice` is bool[T, B], False if a mask allowed nothing: no action was right, and NaN goes there.
        """

    @abc.abstractmethod
    def to_env(self, action: Array) -> Array:
        """A stored action as the environment accepts it, such as clipped to its bounds."""

    @abc.abstractmethod
    def facts(self, out: Any) -> tuple[Array, dict[str, Array]]:
        """(value float32[B], the numbers behind the choice, float32 by name), for exported policies."""

    def architecture(self) -> dict[str, Any] | None:
        """The layers from which `facts` come, for exports that run without this package.

        `Network.describe` of a network whose `head`, on the first trunk, tells the action, and whose head
        `value`, on the last trunk, the value. None if another format is not possible. May be overridden.
        """
        return self.network.describe()

    def acting_params(self, params: PyTree) -> PyTree:
        """The parameters that acting needs, of those that are trained. May be overridden."""
        return params

    def add_solution(self, out: Any, solution: Array) -> Any:
        """The output of `forward` with the environment's best actions [B, *A]; only with `asks_solver`."""
        raise NotImplementedError

    def require_samples(self) -> None:
        """Raises ConfigError if there is nothing to sample."""
        if not self.samples:
            raise ConfigError(
                "`--sample`: this policy has nothing to sample, it always takes the action of highest value"
            )

    def init(self, key: Array) -> Acting:
        """Fresh parameters and, if observations are normalised, statistics of nothing."""
        stats = None
        if self.normalize_config.observations:
            space = self.spec.observation_space
            stats = empty_statistics(self.spec, quantities(space, zeros(space)))
        return Acting(self.init_params(key), stats)

    def moments(self, acting: Acting) -> list[tuple[Array, Array]]:
        """(mean, standard deviation) of each float part of the observations, which are normalised."""
        return list(zip(acting.obs_stats.mean, normalizer.std(acting.obs_stats), strict=True))

    def frozen(self, params: PyTree, moments: Sequence[tuple[Array, Array]] | None) -> Acting:
        """A state that only acts, with these parameters and `moments`; None: nothing is normalised."""
        if moments is None:
            return Acting(params, None)
        mean, std = zip(*moments, strict=True) if moments else ((), ())
        return Acting(params, normalizer.freeze(mean, std))

    def prepare(self, acting: Acting) -> Acting:
        """With what follows from the parameters alone, for many steps with the same parameters."""
        if self.network.prepare is None:
            return acting
        return dataclasses.replace(acting, params=self.network.prepare(acting.params))

    def initial_carry(self, n: int) -> PyTree:
        """Zeros of [n, ...]."""
        return self.network.initial_carry(n)

    def normalize(self, acting: Acting, obs: PyTree) -> PyTree:
        """Observations as the network sees them."""
        if acting.obs_stats is None:
            return obs
        obs = quantities(self.spec.observation_space, obs)
        clip = self.normalize_config.clip_observations if self.normalize_config.observations else 0.0
        return normalizer.normalize(acting.obs_stats, obs, clip, task_of(self.spec, obs))

    def apply(
        self, acting: Acting, obs: PyTree, carry: PyTree, reset: Array, action_mask: Array | None
    ) -> Any:
        """The output for sequences that are normalised already; for learning.

        Args:
          obs: [L, N, *O], from `normalize`.
          carry: tree of [N, ...], the one before the first step.
          reset: bool[L, N], True if `obs` is the first of its episode.
          action_mask: bool[L, N, A] or None.
        """
        return self.output(acting, self.network.apply(acting.params, obs, carry, reset, action_mask))

    def forward(
        self, acting: Acting, obs: PyTree, carry: PyTree, reset: Array, action_mask: Array | None
    ) -> Any:
        """As `apply`, for one time step [B, ...] of raw observations; `acting` may explore."""
        one = lambda tree: jax.tree.map(lambda x: x[None], tree)  # noqa: E731
        seen = one(self.normalize(acting, obs))
        out = self.network.apply(acting.params, seen, carry, reset[None], one(action_mask))
        heads, features = jax.tree.map(lambda x: x[0], (out.heads, out.features))
        return self.output(acting, NetworkOutput(heads, features, out.carry))


def empty_statistics(spec: EnvSpec, example: PyTree) -> PyTree:
    """Running moments of nothing yet, for trees like the example; of each of several tasks."""
    return normalizer.init(example, len(spec.task_names))


def quantities(space: Space, obs: PyTree) -> PyTree:
    """Observations with the integers of each Box as float32: what a normaliser scales are the floats.

    Bytes stay, as networks scale them by their bound; so do choices, flags and the indices of graphs. `space`
    is of one observation, `obs` any number of them.
    """
    if isinstance(space, Dict):
        return obs if is_graph(space) else {name: quantities(part, obs[name]) for name, part in space.spaces}
    is_integer = isinstance(space, Box) and jnp.issubdtype(space.dtype, jnp.integer)
    return obs.astype(jnp.float32) if is_integer and obs.dtype != jnp.uint8 else obs
