"""A network: trunks of an encoder and a core each, with heads on them, behind pure functions.

Only this package knows flax. An algorithm's agent chooses the heads (`jaxrl.algorithms.agent`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.config import ConfigError, NetworkConfig
from jaxrl.envs.base import EnvSpec, zeros
from jaxrl.envs.checks import explain
from jaxrl.networks.architectures import describe_architecture, require_architecture
from jaxrl.networks.central import build_trunk_encoder, policy_space, require_separate_rows
from jaxrl.networks.core import Core
from jaxrl.networks.cores import build_core, check_recurrence, core_waits
from jaxrl.networks.dense import outputs_by_kernel
from jaxrl.networks.encoders import encoder_names
from jaxrl.networks.graphs import TABLES
from jaxrl.networks.kernels.products import precision_of_products
from jaxrl.networks.layers import activation
from jaxrl.networks.operations import Layer, description_of, start_of
from jaxrl.types import Array, PyTree

_SEVERAL = (2, 3)  # steps and environments, to see that a part tells them apart


@dataclass(frozen=True)
class HeadOnTrunk:
    """A head, (features [..., F], action_mask or None) -> output, and the trunk whose features it reads."""

    module: nn.Module
    trunk: str


@flax.struct.dataclass
class NetworkOutput:
    """For [L, N] observations: the outputs of heads, the features [L, N, F] they read, the last carry."""

    heads: dict[str, Any]
    features: dict[str, Array]
    carry: PyTree


@dataclass(frozen=True, eq=False)  # JAX caches programs by functions, and so by their object
class Network:
    """Pure functions of a recurrent network; made by `build`.

    Attributes:
      core: of a trunk, to make first carries and to be described.
      trunks: their names.
      waits_for_the_carry: True if the core's matrix products take one time step after the other.
      prepare: params -> params with what follows from them alone, such as the nodes of fixed graphs: `apply`
        then does not compute that at every call. For acting; no gradient reaches params through it. None
        if there is nothing of the kind.
    """

    network: NetworkConfig
    spec: EnvSpec
    module: _Trunks
    core: Core
    trunks: tuple[str, ...]
    waits_for_the_carry: bool
    prepare: Callable[[PyTree], PyTree] | None = None

    def init(self, key: Array) -> PyTree:
        """float32 parameters."""
        return self.module.init(key, *self._example())["params"]

    def initial_carry(self, n: int) -> PyTree:
        """Zeros of [n, ...] by trunk."""
        return {name: self.core.initial_carry(n) for name in self.trunks}

    def apply(
        self, params: PyTree, obs: PyTree, carry: PyTree, reset: Array, mask: Array | None
    ) -> NetworkOutput:
        """The outputs for observations [L, N, *O].

        The carry of [N, ...] is before the first step; `reset` is bool[L, N], `mask` bool[L, N, A] of
        actions, or None.
        """
        variables = {"params": params}
        if TABLES in params:
            variables[TABLES] = params[TABLES]
        with self._precision:
            out: NetworkOutput = self.module.apply(variables, obs, carry, reset, mask)  # type: ignore[assignment]
        return out

    def layers(
        self, params: PyTree, obs: PyTree, carry: PyTree, reset: Array, mask: Array | None
    ) -> list[tuple[str, Array]]:
        """Arguments of `apply` -> (name, float output) of every layer, in the order of computation."""
        # Recomputed layers would come sorted by name.
        module = self.module.clone(network=dataclasses.replace(self.network, remat=False))
        with self._precision:
            _, seen = module.apply(
                {"params": params},
                *(obs, carry, reset, mask),
                capture_intermediates=True,
                mutable=["intermediates"],
            )
        return list(_outputs(seen["intermediates"], ()))

    def num_features(self) -> int:
        """F of each trunk."""

        def features(key: Array) -> Array:
            return self.apply(self.init(key), *self._example()).features[self.trunks[0]]

        return int(jax.eval_shape(features, jax.random.key(0)).shape[-1])

    def describe(self) -> dict[str, Any] | None:
        """The layers as JSON values, with which the weights run without this package.

        `trunks` by name, each with `encoders` (of one `input` each) and a `core`, and each head by its name.
        `weights` are prefixes of the names of arrays. None if a part has no description, such as a user's
        own, or in bfloat16.
        """
        if self.network.compute_dtype != "float32":
            return None
        found: dict[str, Any] | None = self.module.apply({}, self.trunks, method="describe")  # type: ignore[assignment]
        return found

    def trace(self) -> PyTree:
        """The shapes of what a rollout computes: of several steps and environments, with parameters alone."""
        example = self._example(*_SEVERAL)
        return jax.eval_shape(self.apply, self._shapes(*_SEVERAL)["params"], *example)

    def _with_tables(self, params: PyTree) -> PyTree:
        with self._precision:
            _, found = self.module.apply({"params": params}, *self._example(), mutable=[TABLES])
        return {**params, TABLES: found[TABLES]}

    def _shapes(self, *size: int) -> PyTree:
        """The shapes of all that `init` of the module makes, tables that follow from parameters too."""
        return jax.eval_shape(lambda key: self.module.init(key, *self._example(*size)), jax.random.key(0))

    @property
    def _precision(self) -> AbstractContextManager[Any]:
        return precision_of_products(self.network.matmul_precision)

    def _example(self, length: int = 1, n: int = 1) -> tuple[PyTree, PyTree, Array, Array | None]:
        """Arguments of `apply` after `params`, of `length` steps of `n` environments."""
        obs = zeros(self.spec.observation_space, (length, n))
        mask = jnp.ones((length, n, self.spec.mask_size), bool) if self.spec.has_action_mask else None
        return obs, self.initial_carry(n), jnp.zeros((length, n), bool), mask


def build(network: NetworkConfig, spec: EnvSpec, heads: Mapping[str, HeadOnTrunk]) -> Network:
    """Builds a network for an environment.

    Args:
      network: the configuration of its trunks, which are all alike.
      heads: by the name under which parameters and outputs have them; their trunks are built in this order.

    Raises:
      ConfigError: an unknown name, or a space that no encoder serves.
    """
    activation(network.activation)
    check_recurrence(network)
    require_architecture(network)
    trunks = tuple(dict.fromkeys(head.trunk for head in heads.values()))
    for trunk in trunks:  # the module builds its own; these only check
        build_trunk_encoder(network, spec.observation_space, trunk)
    module = _Trunks(network, spec, tuple((name, x.trunk, x.module) for name, x in heads.items()))
    built = Network(network, spec, module, build_core(network), trunks, core_waits(network))
    encoder = network.architecture or network.encoder
    own = [name for name in (encoder, network.core, network.head) if ":" in name]
    if own:
        try:
            built.trace()
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"`network` with {', '.join(own)} {explain(error)}") from error
    if ":" in encoder:
        for trunk in trunks:
            require_separate_rows(network, spec.observation_space, trunk)
    if network.architecture and TABLES in built._shapes():
        return dataclasses.replace(built, prepare=built._with_tables)
    return built


def describe_trunk(network: NetworkConfig, spec: EnvSpec) -> str:
    """A trunk in words: `mlp 128, lstm 128`."""
    layers = f"{network.core_layers} x " if network.core_layers > 1 else ""
    core = "feed-forward" if network.core == "none" else f"{layers}{network.core} {network.core_size}"
    if network.architecture:
        return f"{describe_architecture(network)}, {core}"
    names = encoder_names(network.encoder, policy_space(network, spec.observation_space))
    encoder = names[""] if "" in names else ", ".join(f"{key} by {name}" for key, name in names.items())
    hidden = " ".join(str(size) for size in network.hidden_sizes)
    return f"{encoder} {hidden}, {core}"


class _Trunks(nn.Module):
    """The trunks in the order in which heads name them first, then the heads."""

    network: NetworkConfig
    spec: EnvSpec
    heads: tuple[tuple[str, str, nn.Module], ...]

    @nn.compact
    def parts(self, trunks: Sequence[str]) -> tuple[dict[str, tuple[nn.Module, Core]], dict[str, nn.Module]]:
        """Bound modules: (encoder, core) by trunk, and heads by name."""
        network = self.network
        space = self.spec.observation_space
        built = {name: (build_trunk_encoder(network, space, name), build_core(network)) for name in trunks}
        heads = {name: module.clone(parent=self, name=name) for name, _, module in self.heads}
        return built, heads

    def __call__(self, obs: PyTree, carry: PyTree, reset: Array, action_mask: Array | None) -> NetworkOutput:
        trunks, modules = self.parts(tuple(carry))
        network = self.network
        remat = network.remat
        encode = nn.remat(_call) if remat else _call
        by_layer = network.core_layers > 1  # A stack does it by itself.
        run = nn.remat(_call) if remat and not by_layer else _call
        features = {}
        after = {}
        for name, (encoder, core) in trunks.items():
            encoded = encode(encoder, obs)
            _require_features(network, encoded, reset)
            features[name], after[name] = run(core, encoded, carry[name], reset)
        outputs = {name: modules[name](features[trunk], action_mask) for name, trunk, _ in self.heads}
        if not self.is_initializing():
            encoders = {name: encoder for name, (encoder, _) in trunks.items()}
            heads = [(name, trunk, modules[name]) for name, trunk, _ in self.heads]
            # The compiler removes the layers above, unless something else reads their features.
            outputs = outputs_by_kernel(network, encoders, heads, obs, action_mask) or outputs
        return NetworkOutput(outputs, features, after)

    def describe(self, trunks: Sequence[str]) -> dict[str, Any] | None:
        built, modules = self.parts(trunks)
        found: dict[str, Layer] = {
            name: {"encoders": description_of(encoder, "obs"), "core": description_of(core)}
            for name, (encoder, core) in built.items()
        }
        heads = {name: description_of(head) for name, head in modules.items()}
        if None in heads.values() or any(None in trunk.values() for trunk in found.values()):
            return None
        if "head" in heads:
            heads["head"] |= start_of(self.spec.action_space)
        return {"trunks": found, **heads}


def _call(module: nn.Module, *inputs: Any) -> Any:
    return module(*inputs)


def _require_features(network: NetworkConfig, encoded: Any, reset_LN: Array) -> None:
    """Raises ConfigError unless an encoder has made floats [L, N, F]."""
    shape = getattr(encoded, "shape", None)
    fits = shape is not None and len(shape) == 3 and shape[:2] == reset_LN.shape
    if fits and jnp.issubdtype(encoded.dtype, jnp.floating):
        return
    length, n = reset_LN.shape
    field = "architecture" if network.architecture else "encoder"
    found = type(encoded).__name__ if shape is None else f"{encoded.dtype}{list(shape)}"
    raise ConfigError(
        f"`network.{field}` (={getattr(network, field)!r}) returned {found} for {length} steps of {n} "
        f"environments; it must return floats [{length}, {n}, F], the features of each observation"
    )


def _outputs(seen: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, Array]]:
    """Flax files a layer's output under the layer's path, as `__call__`, once it has been computed."""
    for name, x in seen.items():
        if name != "__call__":
            yield from _outputs(x, (*path, name))
            continue
        for leaf in jax.tree.leaves(x):
            if jnp.issubdtype(leaf.dtype, jnp.floating):
                yield "/".join(path) or "outputs", leaf
