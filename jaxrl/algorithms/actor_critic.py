"""The agents of actor-critics: a distribution over actions and a value, on one trunk or on two."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl import networks
from jaxrl.algorithms.agent import Agent
from jaxrl.algorithms.sequences import Batch
from jaxrl.config import NetworkConfig, NormalizeConfig
from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.envs import modules
from jaxrl.envs.base import EnvSpec
from jaxrl.networks import Head, HeadOnTrunk, Network, NetworkOutput, ValueHead
from jaxrl.networks.distributions import Distribution, draw_noise, elementwise, parameters_of
from jaxrl.types import Acting, Array, PyTree

# The key of its parameters among the network's.
PARAMS = "auxiliary"


@dataclass(frozen=True)
class AuxiliaryLoss:
    """A loss on the features of a network.

    Attributes:
      function: (params, features, out, batch) -> (loss float32[L, N], metrics: float32[L, N] by name).
        `params` is its own tree (None without `init`), `features` float32[L, N, F] come from the policy's
        trunk, `out` is the agent's output and `batch` a minibatch. Both results are averaged over the steps
        that count; the loss is reported as `loss/auxiliary`.
      init: (key, num_features, spec) -> params, float32; `spec` are the spaces of the environment. None if it
        has none.
    """

    function: Callable[[PyTree, Array, Any, Batch], tuple[Array, dict[str, Array]]]
    metrics: tuple[str, ...] = ()
    init: Callable[[Array, int, EnvSpec], PyTree] | None = None

    @property
    def reported(self) -> tuple[str, ...]:
        """The names of all that it reports."""
        return ("loss/auxiliary", *self.metrics)

    def __call__(self, params: PyTree, out: Any, batch: Batch) -> tuple[Array, dict[str, Array]]:
        """(the loss, what it reports by name): sums over the steps of a minibatch that count.

        Raises:
          ConfigError: the function returns something else, or reports other metrics.
        """
        own = params[PARAMS] if self.init else None
        result = self.function(own, out.features, out, batch)
        where = f"the auxiliary loss {self.function.__module__}:{self.function.__qualname__} returned"
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            found = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
            raise ConfigError(f"{where} {found}; return (loss, metrics), metrics by name in a dict")
        loss, metrics = result
        if set(metrics) != set(self.metrics):
            names = [", ".join(sorted(x)) or "none" for x in (metrics, self.metrics)]
            raise ConfigError(f"{where} the metrics {names[0]}, and declares {names[1]}")
        sums = {name: batch.total(x) for name, x in metrics.items()}
        total = batch.total(loss)
        return total, sums | {"loss/auxiliary": total}


def load(field: str, name: str) -> AuxiliaryLoss | None:
    """The loss that a field of the configuration names; None if it is empty.

    Raises:
      ConfigError: it cannot be imported, or it is neither an `AuxiliaryLoss` nor a function of
        (params, features, out, batch).
    """
    if not name:
        return None
    with errors_as(ConfigError, "", ValueError):
        found = modules.load_attribute(f"`{field}`", name)
    if isinstance(found, AuxiliaryLoss):
        return found
    wanted = ("params", "features", "out", "batch")
    if not inspect.isfunction(found) or tuple(inspect.signature(found).parameters) != wanted:
        raise ConfigError(
            f"`{field}` (={name!r}) must be a function of ({', '.join(wanted)}), or a "
            "jaxrl.algorithms.AuxiliaryLoss of one"
        )
    return AuxiliaryLoss(found)


# Keeps the keys of auxiliary losses apart from the keys of the network.
_AUXILIARY = 0x41555849
# The name of the value function's head, and of its parameters.
VALUE_HEAD = "value"


@flax.struct.dataclass
class ActorCriticOutput:
    """The output of an actor-critic: values float32[...], the carry after the last step, features [..., F].

    The policy's head has read these features.
    """

    distribution: Distribution
    value: Array
    carry: PyTree
    features: Array


@dataclass(frozen=True)
class ActorCritic(Agent):
    """Samples from a policy; a value function, on its own trunk or the policy's, estimates returns.

    Its extras are `log_prob`, of the action when it was taken, and `value`, both float32[T, B]. Methods may
    be overridden, by DAgger's agent of rollouts.
    """

    spec: EnvSpec
    network: Network
    normalize_config: NormalizeConfig
    head: Head
    description: str
    auxiliary: AuxiliaryLoss | None = None

    @classmethod
    def build(cls, network: NetworkConfig, spec: EnvSpec, normalize: NormalizeConfig) -> Self:
        """The agent for an environment.

        Raises:
          ConfigError: an unknown name, or a space that no encoder or head serves.
        """
        head = networks.build_head(network, spec)
        value_trunk = "value" if network.has_own_value else "policy"
        heads = {
            "head": HeadOnTrunk(head.module, "policy"),
            # In float32, as the policy's head: in bfloat16 values near 100 are half a unit apart.
            VALUE_HEAD: HeadOnTrunk(ValueHead(), value_trunk),
        }
        description = f"{networks.describe_trunk(network, spec)}, {networks.head_name(network, spec)}"
        description += ", central value" * network.central_value
        return cls(spec, networks.build(network, spec, heads), normalize, head, description)

    def init_params(self, key: Array) -> PyTree:
        params = self.network.init(key)
        if self.auxiliary is None or self.auxiliary.init is None:
            return params
        # A separate key: the network gets the same parameters as without this loss.
        own_key = jax.random.fold_in(key, _AUXILIARY)
        own = self.auxiliary.init(own_key, self.network.num_features(), self.spec)
        return {**params, PARAMS: own}

    def output(self, acting: Acting, out: NetworkOutput) -> ActorCriticOutput:
        return ActorCriticOutput(out.heads["head"], out.heads[VALUE_HEAD], out.carry, out.features["policy"])

    def draw_noise(self, key: Array, shape: tuple[int, ...], index: Array | int = 0) -> PyTree:
        return draw_noise(self.head.noise_kind, key, (*shape, *self.head.noise_shape))

    def choose(
        self, out: ActorCriticOutput, noise: PyTree, few_kernels: bool = False
    ) -> tuple[Array, dict[str, Array]]:
        distribution = elementwise(out.distribution) if few_kernels else out.distribution
        action = distribution.sample(noise)
        return action, {"log_prob": distribution.log_prob(action), "value": out.value}

    def greedy(self, out: ActorCriticOutput) -> Array:
        return out.distribution.mode()

    def bootstrap(self, out: ActorCriticOutput) -> PyTree:
        return out.value

    def finish(self, extras: dict[str, Array], has_choice: Array) -> dict[str, Array]:
        return extras | {"log_prob": jnp.where(has_choice, extras["log_prob"], jnp.nan)}

    def to_env(self, action: Array) -> Array:
        return self.head.to_env(action)

    def facts(self, out: ActorCriticOutput) -> tuple[Array, dict[str, Array]]:
        return out.value, parameters_of(out.distribution)

    def acting_params(self, params: PyTree) -> PyTree:
        return {name: part for name, part in params.items() if name != PARAMS}
