"""The agents of actor-critics: a distribution over actions and a value, on one trunk or on two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl import networks
from jaxrl.algorithms.agent import Agent
from jaxrl.algorithms.auxiliary import PARAMS, AuxiliaryLoss
from jaxrl.config import NetworkConfig, NormalizeConfig
from jaxrl.envs.base import EnvSpec
from jaxrl.networks import Head, HeadOnTrunk, Network, NetworkOutput, ValueHead
from jaxrl.networks.distributions import Distribution, draw_noise, elementwise, parameters_of
from jaxrl.types import Acting, Array, PyTree

# Keeps the keys of auxiliary losses apart from the keys of the network.
_AUXILIARY = 0x41555849
# The name of the value function's head, and of its parameters.
VALUE_HEAD = "value"


@flax.struct.dataclass
class ActorCriticOutput:
    """The output of an actor-critic for observations.

    Attributes:
      value: float32[...].
      carry: after the last step.
      features: [..., F], that the policy's head has read.
    """

    distribution: Distribution
    value: Array
    carry: PyTree
    features: Array


@dataclass(frozen=True)
class ActorCritic(Agent):
    """Samples from a policy; a value function, on its own trunk or the policy's, estimates returns.

    Its extras are `log_prob`, of the action when it was taken, and `value`, both float32[T, B].

    Attributes:
      head: of the policy.
      auxiliary: a loss with parameters beside the network's, or None.
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

    def draw_noise(self, key: Array, shape: tuple[int, ...], index: Array | int = 0) -> Array:
        return draw_noise(self.head.noise_kind, key, (*shape, *self.head.noise_shape))

    def choose(
        self, out: ActorCriticOutput, noise: Array, few_kernels: bool = False
    ) -> tuple[Array, dict[str, Array]]:
        distribution = elementwise(out.distribution) if few_kernels else out.distribution
        action = distribution.sample(noise)
        return action, {"log_prob": distribution.log_prob(action), "value": out.value}

    def greedy(self, out: ActorCriticOutput) -> Array:
        return out.distribution.mode()

    def bootstrap(self, out: ActorCriticOutput) -> Array:
        return out.value

    def finish(self, extras: dict[str, Array], has_choice: Array) -> dict[str, Array]:
        return extras | {"log_prob": jnp.where(has_choice, extras["log_prob"], jnp.nan)}

    def to_env(self, action: Array) -> Array:
        return self.head.to_env(action)

    def facts(self, out: ActorCriticOutput) -> tuple[Array, dict[str, Array]]:
        return out.value, parameters_of(out.distribution)

    def architecture(self) -> dict[str, Any] | None:
        return self.network.describe()

    def acting_params(self, params: PyTree) -> PyTree:
        return {name: part for name, part in params.items() if name != PARAMS}
