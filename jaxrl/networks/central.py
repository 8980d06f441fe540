"""Encoders for a value function that sees the global state and a policy that does not."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from jaxrl.config import NetworkConfig
from jaxrl.envs.base import Box, Dict, Discrete, MultiDiscrete, Space
from jaxrl.envs.wrappers.agents import CENTRAL, OWN
from jaxrl.networks.architectures import build_architecture
from jaxrl.networks.encoders import JointMLP, build_encoder, dense_stack, encoder_names
from jaxrl.networks.layers import DTYPES
from jaxrl.networks.operations import run
from jaxrl.types import Array

# The trunk whose features the policy's head reads; with a central value it sees the agent's own part alone.
POLICY = "policy"


def policy_space(network: NetworkConfig, space: Space) -> Space:
    """The part of an observation space that the policy sees."""
    if not network.central_value:
        return space
    assert isinstance(space, Dict), "`network.central_value` goes with the wrapper central_observation"
    return space[OWN]


class OwnEncoder(nn.Module):
    """The encoder of the policy, which gets the agent's own observation and nothing else."""

    encoder: nn.Module

    @nn.compact
    def __call__(self, obs: dict[str, Any]) -> Array:
        return self.encoder(obs[OWN])

    def describe(self, name: str) -> Any:
        """See `ArrayEncoder.describe`."""
        return self.encoder.describe(f"{name}.{OWN}") if hasattr(self.encoder, "describe") else None


class BothEncoder(nn.Module):
    """An encoder of each part, and a dense layer over both: added features alone would not interact."""

    own: nn.Module
    central: nn.Module
    sizes: tuple[int, ...]
    activation: str
    dtype: jnp.dtype
    layer_norm: bool

    @nn.compact
    def __call__(self, obs: dict[str, Any]) -> Array:
        features = jnp.concatenate([self.own(obs[OWN]), self.central(obs[CENTRAL])], axis=-1)
        return run(list(dense_stack(self.sizes, self.activation, self.dtype, self.layer_norm)), features)


def build_trunk_encoder(network: NetworkConfig, space: Space, trunk: str) -> nn.Module:
    """The encoder of a trunk: of the named architecture, or else as `network.encoder` says.

    With a central value, the policy's encoder sees its own part alone; others see both parts, vectors through
    one network over both.

    Raises:
      ConfigError: the observation does not suit the encoder or the architecture.
    """
    build = build_architecture if network.architecture else build_encoder
    if not network.central_value:
        return build(network, space)
    own = policy_space(network, space)
    if trunk == POLICY:
        return OwnEncoder(build(network, own))
    assert isinstance(space, Dict)
    dtype = DTYPES[network.compute_dtype]
    is_dense = not network.architecture and encoder_names(network.encoder, own).get("") == "mlp"
    if is_dense and _is_vector(own) and _is_vector(space[CENTRAL]):
        return JointMLP(space.spaces, network.hidden_sizes, network.activation, dtype, network.layer_norm)
    alone = dataclasses.replace(network, encoder="auto", architecture="")
    return BothEncoder(
        build(network, own),
        build_encoder(alone, space[CENTRAL]),
        network.hidden_sizes[-1:],
        network.activation,
        dtype,
        network.layer_norm,
    )


def _is_vector(space: Space) -> bool:
    return isinstance(space, Discrete | MultiDiscrete) or (isinstance(space, Box) and len(space.shape) <= 2)
