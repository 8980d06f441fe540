"""Encoders of trunks, with a central value or without, and the check of custom ones."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config import ConfigError, NetworkConfig
from jaxrl.envs.spaces import Box, Dict, Discrete, Mixed, MultiDiscrete, Space, drawn_bounds
from jaxrl.envs.wrappers.agents import CENTRAL, OWN
from jaxrl.networks.architectures import build_architecture
from jaxrl.networks.encoders import build_encoder, dense_stack, encoder_names
from jaxrl.networks.layers import DTYPES
from jaxrl.networks.operations import description_of, run
from jaxrl.types import Array, PyTree

# The trunk whose features the policy's head reads; with a central value it sees the agent's own part alone.
POLICY = "policy"
_ROWS = (2, 2)  # steps and environments: encoders see both as leading dimensions


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
        return description_of(self.encoder, f"{name}.{OWN}")


class BothEncoder(nn.Module):
    """An encoder of each part, and a dense layer over both: added features alone would not interact."""

    own: nn.Module
    central: nn.Module
    network: NetworkConfig

    @nn.compact
    def __call__(self, obs: dict[str, Any]) -> Array:
        features = jnp.concatenate([self.own(obs[OWN]), self.central(obs[CENTRAL])], axis=-1)
        network = self.network
        dtype = DTYPES[network.compute_dtype]
        dense = dense_stack(network.hidden_sizes[-1:], network.activation, dtype, network.layer_norm)
        return run(list(dense), features)


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
    is_dense = not network.architecture and encoder_names(network.encoder, own).get("") == "mlp"
    if is_dense and _is_vector(own) and _is_vector(space[CENTRAL]):
        return build_encoder(dataclasses.replace(network, encoder="joint"), space)
    alone = dataclasses.replace(network, encoder="auto", architecture="")
    return BothEncoder(build(network, own), build_encoder(alone, space[CENTRAL]), network)


def _is_vector(space: Space) -> bool:
    return isinstance(space, Discrete | MultiDiscrete) or (isinstance(space, Box) and len(space.shape) <= 2)


@functools.cache
def require_separate_rows(network: NetworkConfig, space: Space, trunk: str) -> None:
    """Raises ConfigError if the features of an observation change with other observations of a batch.

    Rollouts, minibatches, evaluations and servers have batches of different sizes and contents, so a
    policy that normalises over a batch is another one in each. Compiles and runs the encoder.
    """
    encoder = build_trunk_encoder(network, space, trunk)
    rng = np.random.default_rng(0)
    batches = _batches(space, rng)
    shapes = jax.eval_shape(encoder.init, jax.random.key(0), batches[0]).get("params", {})
    # Not those of `init`, which would have to be compiled.
    params = jax.tree.map(lambda x: rng.normal(scale=0.1, size=x.shape).astype(x.dtype), shapes)
    features = jax.jit(encoder.apply)
    one, other = (np.asarray(features({"params": params}, obs))[0, 0] for obs in batches)
    if not np.array_equal(one, other, equal_nan=True):
        field = "architecture" if network.architecture else "encoder"
        raise ConfigError(
            f"`network.{field}` (={getattr(network, field)!r}) makes features of an observation that depend "
            "on the others in its batch: sums, means and norms must leave out the first two axes"
        )


def _batches(space: Space, rng: np.random.Generator) -> tuple[PyTree, PyTree]:
    """Two batches of random observations [*_ROWS, *O]; only their first observations are the same."""
    if isinstance(space, Dict):
        both = {name: _batches(part, rng) for name, part in space.spaces}
        return {name: x for name, (x, _) in both.items()}, {name: x for name, (_, x) in both.items()}
    assert not isinstance(space, Mixed)  # That is of actions.
    low, high = drawn_bounds(space)
    one, other = (rng.uniform(low, high, (*_ROWS, *space.shape)).astype(space.dtype) for _ in range(2))
    other[0, 0] = one[0, 0]
    return one, other
