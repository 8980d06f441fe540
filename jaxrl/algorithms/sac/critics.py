"""The critics of SAC: two networks of observation and action, with or without a memory."""

from __future__ import annotations

import abc
import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl import networks
from jaxrl.config import ConfigError, NetworkConfig
from jaxrl.envs.base import Box, Dict, EnvSpec, Space
from jaxrl.networks import FeaturesHead, HeadOnTrunk, Network, ValueHead
from jaxrl.types import Array, PyTree

_ACTION = "~action"  # among the parts of an observation, which it must not be named like
_NAMES = ("q0", "q1")


class Critics(abc.ABC):
    """Two critics as pure functions of their parameters."""

    @abc.abstractmethod
    def init(self, key: Array) -> PyTree:
        """Fresh parameters."""

    @abc.abstractmethod
    def initial_carry(self, n: int) -> dict[str, Any]:
        """Zeros of [n, ...], by names that the policy's carry does not have."""

    @abc.abstractmethod
    def see(self, params: PyTree, obs: PyTree, carry: PyTree, reset: Array) -> tuple[PyTree, dict[str, Any]]:
        """(leaves [L, N, ...] that `values` takes in place of observations, the carry after them).

        Args:
          params: of both.
          obs: [L, N, ...], normalised already.
          carry: [N, ...], the one before the first step; it may hold other parts as well.
          reset: bool[L, N].
        """

    @abc.abstractmethod
    def values(self, params: PyTree, seen: PyTree, action: Array) -> Array:
        """float32[2, L, N], of both critics.

        Args:
          params: of both.
          seen: of `see`.
          action: float32[L, N, D], squashed to [-1, 1].
        """


@dataclass(frozen=True)
class StepCritics(Critics):
    """Networks of a single observation and an action, side by side.

    Attributes:
      network: with a trunk for each critic.
    """

    network: Network

    def init(self, key: Array) -> PyTree:
        return self.network.init(key)

    def initial_carry(self, n: int) -> dict[str, Any]:
        return {}

    def see(self, params: PyTree, obs: PyTree, carry: PyTree, reset: Array) -> tuple[PyTree, dict[str, Any]]:
        return obs, {}

    def values(self, params: PyTree, seen: PyTree, action: Array) -> Array:
        heads = _heads(self.network, params, seen if isinstance(seen, dict) else {"": seen}, action)
        return jnp.stack([heads[name] for name in _NAMES])


@dataclass(frozen=True)
class RecurrentCritics(Critics):
    """A recurrent network of observations for each critic, and a layer that takes the action beside it.

    An action enters after the core: so values of any action follow from what was seen (Ni et al. 2022,
    "Recurrent model-free RL can be a strong baseline for many POMDPs").

    Attributes:
      memory: with a trunk for each critic.
      value: of a trunk's features and an action; the parameters of each critic are its own.
    """

    memory: Network
    value: Network

    def init(self, key: Array) -> PyTree:
        memory, *values = jax.random.split(key, 1 + len(_NAMES))
        own = dict(zip(_NAMES, map(self.value.init, values), strict=True))
        return {"memory": self.memory.init(memory), **own}

    def initial_carry(self, n: int) -> dict[str, Any]:
        return dict(self.memory.initial_carry(n))

    def see(self, params: PyTree, obs: PyTree, carry: PyTree, reset: Array) -> tuple[PyTree, dict[str, Any]]:
        own = {name: carry[name] for name in _NAMES}
        out = self.memory.apply(params["memory"], obs, own, reset, None)
        return {name: out.features[name] for name in _NAMES}, out.carry

    def values(self, params: PyTree, seen: PyTree, action: Array) -> Array:
        heads = [_heads(self.value, params[name], {"": seen[name]}, action) for name in _NAMES]
        return jnp.stack([each["q"] for each in heads])


def _heads(network: Network, params: PyTree, parts: dict[str, Array], action: Array) -> dict[str, Array]:
    """The heads' outputs [L, N], of a network without a memory, on parts of an observation and an action."""
    length, envs = action.shape[:2]
    inputs = {**parts, _ACTION: action}, network.initial_carry(envs), jnp.ones((length, envs), bool)
    return network.apply(params, *inputs, None).heads


def build_critics(network: NetworkConfig, spec: EnvSpec) -> Critics:
    """The critics for an environment; recurrent if `network.core` is.

    Raises:
      ConfigError: observations are not vectors.
    """
    space = spec.action_space
    assert isinstance(space, Box)
    action = Box.of(-1.0, 1.0, space.shape)
    parts = _parts(network, spec)
    alone = dataclasses.replace(spec, goals=None, has_action_mask=False, stacked_frames=1)

    def sees(*parts: tuple[str, Space]) -> EnvSpec:
        return dataclasses.replace(alone, observation_space=Dict(tuple(sorted(parts))))

    if network.core == "none":
        heads = {name: HeadOnTrunk(ValueHead(), name) for name in _NAMES}
        joint = dataclasses.replace(network, encoder="joint")
        return StepCritics(networks.build(joint, sees(*parts, (_ACTION, action)), heads))
    memory = networks.build(network, alone, {name: HeadOnTrunk(FeaturesHead(), name) for name in _NAMES})
    features = Box.of(-jnp.inf, jnp.inf, (memory.num_features(),))
    # It has no recurrence, for which GPUs have a kernel.
    last = dataclasses.replace(
        network,
        encoder="joint",
        core="none",
        core_layers=1,
        recurrence="scan",
        hidden_sizes=network.hidden_sizes[-1:],
    )
    value = networks.build(
        last, sees(("", features), (_ACTION, action)), {"q": HeadOnTrunk(ValueHead(), "q")}
    )
    return RecurrentCritics(memory, value)


def _parts(network: NetworkConfig, spec: EnvSpec) -> tuple[tuple[str, Space], ...]:
    """The parts of an observation, all of them vectors."""
    if network.architecture:
        raise ConfigError(
            f"`network.architecture` (={network.architecture!r}) is not offered by sac, whose critics see "
            "actions too"
        )
    space = spec.observation_space
    parts = space.spaces if isinstance(space, Dict) else (("", space),)
    encoders = ("joint",) if isinstance(space, Dict) else ("auto", "mlp")
    if network.encoder not in encoders or not all(isinstance(x, Box) and len(x.shape) == 1 for _, x in parts):
        raise ConfigError(
            f"`algorithm` (='sac') takes vectors (`network.encoder` 'auto' or 'mlp') or a dict of vectors "
            f"('joint'); `network.encoder` is {network.encoder!r}, and observations of {spec.name!r} are "
            f"{space}"
        )
    return parts
