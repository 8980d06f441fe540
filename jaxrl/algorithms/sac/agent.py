"""The agent of SAC: a squashed Gaussian policy, and two critics of state and action."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Self

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl import networks
from jaxrl.algorithms.agent import Agent
from jaxrl.config import ConfigError, NetworkConfig, NormalizeConfig
from jaxrl.envs.base import Box, Dict, EnvSpec, Space
from jaxrl.networks import HeadOnTrunk, Network, NetworkOutput, SoftActorHead, ValueHead
from jaxrl.networks.gaussians import TanhGaussian, squash
from jaxrl.types import Acting, Array, PyTree

CRITIC = "critic"  # among the parameters, beside those of the policy's network
_ACTION = "~action"  # among the parts of an observation, which it must not be named like
_LARGEST = 1.0 - 1e-6  # of a uniform action in [-1, 1] before atanh


@flax.struct.dataclass
class SACOutput:
    """The output for observations.

    Attributes:
      distribution: over actions before tanh.
      carry: after the last step.
      explores: float32[], 1 where actions are uniform; None: never.
      value: float32[B], the lesser critic's of the action without noise; None in learning.
    """

    distribution: TanhGaussian
    carry: PyTree
    explores: Array | None
    value: Array | None = None


@dataclass(frozen=True)
class SACAgent(Agent):
    """Samples from the policy; uniformly as long as it is told to explore.

    Stored actions are those before tanh. Its extras are `log_prob`, float32[T, B].

    Attributes:
      network: of the policy.
      critic: two critics, `q0` and `q1`, each on a trunk of its own, of observation and squashed action.
      description: of the networks, in words.
    """

    spec: EnvSpec
    network: Network
    normalize_config: NormalizeConfig
    critic: Network
    description: str
    needs_final_observations: bool = True

    @classmethod
    def build(cls, network: NetworkConfig, spec: EnvSpec, normalize: NormalizeConfig) -> Self:
        """The agent for an environment.

        Raises:
          ConfigError: the actions have no bounds, or the observations are not vectors.
        """
        space = spec.action_space
        if not (isinstance(space, Box) and len(space.shape) == 1 and space.bounded):
            raise ConfigError(
                "`algorithm` (='sac') needs continuous actions, one-dimensional and with bounds, and those "
                f"of {spec.name!r} are {space}: use `dqn` or `pqn` for discrete ones"
            )
        size = space.shape[0]
        heads = {"head": HeadOnTrunk(SoftActorHead(size), "policy")}
        critics = {f"q{i}": HeadOnTrunk(ValueHead(), f"q{i}") for i in range(2)}
        alone = dataclasses.replace(spec, goals=None, has_action_mask=False, stacked_frames=1)
        seen = dataclasses.replace(alone, observation_space=Dict(_parts(network, spec, size)))
        return cls(
            spec=spec,
            network=networks.build(network, spec, heads),
            normalize_config=normalize,
            critic=networks.build(dataclasses.replace(network, encoder="joint"), seen, critics),
            description=f"{networks.describe_trunk(network, spec)}, squashed gaussian, two critics",
        )

    def init_params(self, key: Array) -> PyTree:
        own, others = jax.random.split(key)
        return {**self.network.init(own), CRITIC: self.critic.init(others)}

    def output(self, acting: Acting, out: NetworkOutput) -> SACOutput:
        return SACOutput(out.heads["head"], out.carry, acting.exploration)

    def forward(
        self, acting: Acting, obs: PyTree, carry: PyTree, reset: Array, action_mask: Array | None
    ) -> SACOutput:
        out: SACOutput = super().forward(acting, obs, carry, reset, action_mask)
        best = jnp.tanh(out.distribution.mode())
        q = self.q_values(acting.params[CRITIC], self.normalize(acting, obs), best)
        return dataclasses.replace(out, value=q.min(axis=0))

    def q_values(self, critic: PyTree, obs: PyTree, action: Array) -> Array:
        """float32[2, N], of both critics.

        Args:
          critic: their parameters.
          obs: [N, ...], normalised already.
          action: float32[N, D], squashed to [-1, 1].
        """
        parts = {**(obs if isinstance(obs, dict) else {"": obs}), _ACTION: action}
        one, envs = jax.tree.map(lambda x: x[None], parts), len(action)
        reset = jnp.ones((1, envs), bool)
        heads = self.critic.apply(critic, one, self.critic.initial_carry(envs), reset, None).heads
        return jnp.stack([heads["q0"][0], heads["q1"][0]])

    def draw_noise(self, key: Array, shape: tuple[int, ...], index: Array | int = 0) -> Array:
        assert isinstance(self.spec.action_space, Box)
        return jax.random.normal(key, (*shape, *self.spec.action_space.shape), jnp.float32)

    def choose(
        self, out: SACOutput, noise: Array, few_kernels: bool = False
    ) -> tuple[Array, dict[str, Array]]:
        action = out.distribution.sample(noise)
        if out.explores is not None:
            # The distribution function of the noise makes it uniform.
            uniform = jax.scipy.special.erf(noise * math.sqrt(0.5))
            uniform = jnp.arctanh(jnp.clip(uniform, -_LARGEST, _LARGEST))
            action = jnp.where(out.explores > 0, uniform, action)
        return action, {"log_prob": out.distribution.log_prob(action)}

    def greedy(self, out: SACOutput) -> Array:
        return out.distribution.mode()

    def bootstrap(self, out: SACOutput) -> None:
        """Nothing: targets are computed when transitions are drawn."""

    def finish(self, extras: dict[str, Array], has_choice: Array) -> dict[str, Array]:
        return extras

    def to_env(self, action: Array) -> Array:
        space = self.spec.action_space
        assert isinstance(space, Box)
        return squash(action, jnp.asarray(space.low, jnp.float32), jnp.asarray(space.high, jnp.float32))

    def facts(self, out: SACOutput) -> tuple[Array, dict[str, Array]]:
        assert out.value is not None
        distribution = {"mean": out.distribution.mean, "log_std": out.distribution.log_std}
        return out.value, {name: x.astype(jnp.float32) for name, x in distribution.items()}

    def describe(self) -> str:
        return self.description

    def architecture(self) -> dict[str, Any] | None:
        return None

    def acting_params(self, params: PyTree) -> PyTree:
        return params


def _parts(network: NetworkConfig, spec: EnvSpec, size: int) -> tuple[tuple[str, Space], ...]:
    """The inputs of the critics: the parts of an observation, all of them vectors, and an action."""
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
    return tuple(sorted((*parts, (_ACTION, Box.of(-1.0, 1.0, (size,))))))
