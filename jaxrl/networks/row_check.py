"""A check that a custom encoder encodes each observation by itself."""

from __future__ import annotations

import functools

import jax
import numpy as np

from jaxrl.config import ConfigError, NetworkConfig
from jaxrl.envs.spaces import Dict, Mixed, Space, drawn_bounds
from jaxrl.networks.central import build_trunk_encoder
from jaxrl.types import PyTree

_ROWS = (2, 2)  # steps and environments: encoders see both as leading dimensions


@functools.cache
def require_separate_rows(network: NetworkConfig, space: Space, trunk: str) -> None:
    """Raises ConfigError if the features of an observation change with other observations of a batch.

    Rollouts, minibatches, evaluations and servers have batches of different sizes and contents, so a
    policy that normalises over a batch is another one in each. Compiles and runs the encoder.

    Args:
      trunk: the name of the trunk that has the encoder.
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
