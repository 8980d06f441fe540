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
from jaxrl.algorithms.sac.critics import Critics, build_critics
from jaxrl.config import ConfigError, NetworkConfig, NormalizeConfig
from jaxrl.envs.base import Box, EnvSpec
from jaxrl.networks import HeadOnTrunk, Network, NetworkOutput, SoftActorHead
from jaxrl.networks.gaussians import TanhGaussian, is_vector_of_floats, squash
from jaxrl.types import Acting, Array, PyTree

_POLICY = "policy"  # the trunk of its network
CRITIC = "critic"  # among the parameters, beside the policy's network
_LARGEST = 1.0 - 1e-6  # of a uniform action in [-1, 1] before atanh


@flax.struct.dataclass
class SACOutput:
    """The output for observations.

    Attributes:
      distribution: over actions before tanh.
      carry: after the last step; includes the critics' only from `forward`.
      explores: float32[], 1 where actions are uniform; None: never.
      value: float32[B], the lesser critic's of the action without noise; None in learning.
    """

    distribution: TanhGaussian
    carry: PyTree
    explores: Array | None
    value: Array | None = None


@dataclass(frozen=True)
class SACAgent(Agent):
    """Samples from the policy, or uniformly while it explores.

    Actions are stored before tanh. Its extras are `log_prob`, float32[T, B].

    Attributes:
      critics: of observation and squashed action.
    """

    spec: EnvSpec
    network: Network
    normalize_config: NormalizeConfig
    critics: Critics
    description: str
    needs_final_observations: bool = True

    @classmethod
    def build(cls, network: NetworkConfig, spec: EnvSpec, normalize: NormalizeConfig) -> Self:
        """The agent for an environment.

        Raises:
          ConfigError: the actions have no bounds, or the observations are not vectors.
        """
        space = spec.action_space
        if not is_vector_of_floats(space) or not space.bounded:
            raise ConfigError(
                "`algorithm` (='sac') needs continuous actions, one-dimensional and with bounds; the actions "
                f"of {spec.name!r} are {space}: use `dqn` or `pqn` for discrete ones"
            )
        critics = build_critics(network, spec)
        heads = {"head": HeadOnTrunk(SoftActorHead(space.shape[0]), _POLICY)}
        return cls(
            spec=spec,
            network=networks.build(network, spec, heads),
            normalize_config=normalize,
            critics=critics,
            description=f"{networks.describe_trunk(network, spec)}, squashed gaussian, two critics",
        )

    def init_params(self, key: Array) -> PyTree:
        own, others = jax.random.split(key)
        return {**self.network.init(own), CRITIC: self.critics.init(others)}

    def output(self, acting: Acting, out: NetworkOutput) -> SACOutput:
        return SACOutput(out.heads["head"], out.carry, acting.exploration)

    def initial_carry(self, n: int) -> PyTree:
        return {**self.network.initial_carry(n), **self.critics.initial_carry(n)}

    def policy_carry(self, carry: PyTree) -> PyTree:
        """The part of a carry that the policy's network takes."""
        return {_POLICY: carry[_POLICY]}

    def apply(
        self, acting: Acting, obs: PyTree, carry: PyTree, reset: Array, action_mask: Array | None
    ) -> SACOutput:
        """The output of the policy alone, without the critics."""
        own = self.policy_carry(carry)
        return self.output(acting, self.network.apply(acting.params, obs, own, reset, action_mask))

    def forward(
        self, acting: Acting, obs: PyTree, carry: PyTree, reset: Array, action_mask: Array | None
    ) -> SACOutput:
        one = lambda tree: jax.tree.map(lambda x: x[None], tree)  # noqa: E731
        inputs = one(self.normalize(acting, obs)), carry, reset[None]
        out = self.apply(acting, *inputs, one(action_mask))
        critic = acting.params[CRITIC]
        seen, after = self.critics.see(critic, *inputs)
        q = self.critics.values(critic, seen, jnp.tanh(out.distribution.mode()))
        distribution = jax.tree.map(lambda x: x[0], out.distribution)
        carry = {**out.carry, **after}
        return dataclasses.replace(out, distribution=distribution, carry=carry, value=q[:, 0].min(axis=0))

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
        """Nothing: targets are computed when transitions are sampled."""

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

    def architecture(self) -> dict[str, Any] | None:
        return None
