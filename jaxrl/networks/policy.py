"""The policy: encoder, core and heads behind a few pure functions. Only this package knows flax."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from envs import modules
from envs.base import EnvSpec, Space, zeros
from jaxrl.config import ConfigError, NetworkConfig, NormalizeConfig
from jaxrl.networks import normalizer
from jaxrl.networks.cores import build_core, check_recurrence
from jaxrl.networks.distributions import Distribution
from jaxrl.networks.encoders import build_encoder, encoder_names
from jaxrl.networks.heads import Head, build_head, head_name
from jaxrl.networks.layers import Dense, activation
from jaxrl.types import Array, PolicyState, PyTree


@flax.struct.dataclass
class PolicyOutput:
    """What the policy says of [L, N] observations; `carry` is the one after the last step."""

    distribution: Distribution
    value: Array
    carry: PyTree


@dataclass(frozen=True)
class Policy:
    """Pure functions of a recurrent actor-critic.

    Attributes:
      init: key -> params (float32 tree).
      initial_carry: n -> carry, zeros of [n, ...].
      apply: (params, obs [L, N, *O], carry [N, ...], reset [L, N], action_mask [L, N, A] or None)
        -> PolicyOutput; log-probabilities and values are float32.
      layers: arguments of `apply` -> (name, float output) of every layer, in the order of computation.
      head: what the rollout must know about actions.
      waits_for_the_carry: whether the core's matrix products take one time step after the other.
      normalized_space: the observation space, where observations are normalised, else None.
      clip_observations: bound of normalised observations, in standard deviations; 0 does not clip.
    """

    init: Callable[[Array], PyTree]
    initial_carry: Callable[[int], PyTree]
    apply: Callable[[PyTree, PyTree, PyTree, Array, Array | None], PolicyOutput]
    layers: Callable[[PyTree, PyTree, PyTree, Array, Array | None], list[tuple[str, Array]]]
    head: Head
    waits_for_the_carry: bool
    normalized_space: Space | None = None
    clip_observations: float = 0.0

    def initial_state(self, key: Array) -> PolicyState:
        """Fresh parameters and, where observations are normalised, statistics of nothing."""
        space = self.normalized_space
        stats = None if space is None else normalizer.init(zeros(space))
        return PolicyState(self.init(key), stats)

    def normalize(self, state: PolicyState, obs: PyTree) -> PyTree:
        """Observations as the network sees them."""
        return normalizer.normalize(state.obs_stats, obs, self.clip_observations)

    def act(
        self, state: PolicyState, obs: PyTree, carry: PyTree, reset: Array, action_mask: Array | None
    ) -> PolicyOutput:
        """Normalises one time step of raw observations and runs the network on it.

        Args:
          state: parameters and frozen statistics.
          obs: [B, *O], raw.
          carry: tree of [B, ...], the one before `obs`.
          reset: bool[B], True where `obs` is the first of its episode.
          action_mask: bool[B, A] or None.
        """
        return self.step(state.params, self.normalize(state, obs), carry, reset, action_mask)

    def step(
        self, params: PyTree, obs: PyTree, carry: PyTree, reset: Array, action_mask: Array | None
    ) -> PolicyOutput:
        """`apply` for one time step: arguments and results without the leading L."""
        one = lambda tree: jax.tree.map(lambda x: x[None], tree)  # noqa: E731
        out = self.apply(params, one(obs), carry, reset[None], one(action_mask))
        drop = lambda tree: jax.tree.map(lambda x: x[0], tree)  # noqa: E731
        return PolicyOutput(drop(out.distribution), out.value[0], out.carry)


def build(network: NetworkConfig, spec: EnvSpec, normalize: NormalizeConfig | None = None) -> Policy:
    """Builds the policy for an environment.

    Args:
      network: what to build.
      spec: spaces of the environment.
      normalize: how observations are normalised; None takes them as they are.

    Raises:
      ConfigError: an unknown name, or a space that no encoder or head serves.
    """
    activation(network.activation)
    check_recurrence(network)
    head = build_head(network, spec)
    module = ActorCritic(network, spec, head.module)
    core = build_core(network)
    build_encoder(network, spec.observation_space)  # the module builds its own; this one only checks
    trunks = ("policy", "value") if network.separate_value else ("policy",)

    def initial_carry(n: int) -> PyTree:
        return {name: core.initial_carry(n) for name in trunks}

    def init(key: Array) -> PyTree:
        obs = zeros(spec.observation_space, (1, 1))
        mask = jnp.ones((1, 1, spec.mask_size), bool) if spec.has_action_mask else None
        reset = jnp.zeros((1, 1), bool)
        return module.init(key, obs, initial_carry(1), reset, mask)["params"]

    def apply(params: PyTree, obs: PyTree, carry: PyTree, reset: Array, mask: Array | None) -> PolicyOutput:
        out: PolicyOutput = module.apply({"params": params}, obs, carry, reset, mask)  # type: ignore[assignment]
        return out

    def layers(
        params: PyTree, obs: PyTree, carry: PyTree, reset: Array, mask: Array | None
    ) -> list[tuple[str, Array]]:
        variables = {"params": params}
        _, seen = module.apply(
            variables, obs, carry, reset, mask, capture_intermediates=True, mutable=["intermediates"]
        )
        return list(_outputs(seen["intermediates"], ()))

    own = [name for name in (network.encoder, network.core, network.head) if ":" in name]
    if own:
        _try(own, lambda: jax.eval_shape(init, jax.random.key(0)))
    normalizes = normalize is not None and normalize.observations
    return Policy(
        init=init,
        initial_carry=initial_carry,
        apply=apply,
        layers=layers,
        head=head,
        waits_for_the_carry=core.waits_for_the_carry,
        normalized_space=spec.observation_space if normalizes else None,
        clip_observations=normalize.clip_observations if normalize else 0.0,
    )


def describe(network: NetworkConfig, spec: EnvSpec) -> str:
    """What `build` makes, for people: `mlp 128, lstm 128, categorical`."""
    names = encoder_names(network.encoder, spec.observation_space)
    encoder = names[""] if "" in names else ", ".join(f"{key} by {name}" for key, name in names.items())
    hidden = " ".join(str(size) for size in network.hidden_sizes)
    core = "feed-forward" if network.core == "none" else f"{network.core} {network.core_size}"
    return f"{encoder} {hidden}, {core}, {head_name(network, spec)}"


class ActorCritic(nn.Module):
    """Encoder, core, policy head and value head; with `separate_value` the value has its own trunk."""

    network: NetworkConfig
    spec: EnvSpec
    head: nn.Module

    @nn.compact
    def __call__(self, obs: PyTree, carry: PyTree, reset: Array, action_mask: Array | None) -> PolicyOutput:
        features, after = {}, {}
        for name in carry:
            x = build_encoder(self.network, self.spec.observation_space)(obs)
            core = build_core(self.network)
            features[name], after[name] = core(x, carry[name], reset)
        distribution = self.head(features["policy"], action_mask)
        value_features = features.get("value", features["policy"])
        # In float32, as the policy's head: in bfloat16 values near 100 are half a unit apart.
        value = Dense(1, 1.0, name="value")(value_features)
        return PolicyOutput(distribution, value[..., 0], after)


def _try(names: list[str], trace: Callable[[], PyTree]) -> None:
    """Raises ConfigError where a network with parts of the user's own does not fit together."""
    try:
        trace()
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"`network` with {', '.join(names)} raised {modules.one_line(error)}") from error


def _outputs(seen: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, Array]]:
    """Flax files a layer's output under the layer's path, as `__call__`, once it has been computed."""
    for name, x in seen.items():
        if name != "__call__":
            yield from _outputs(x, (*path, name))
            continue
        for leaf in jax.tree.leaves(x):
            if jnp.issubdtype(leaf.dtype, jnp.floating):
                yield "/".join(path) or "outputs", leaf
