"""Q-values of actions: the agents of value learners, which explore epsilon-greedily, and their targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl import networks
from jaxrl.algorithms.agent import Agent
from jaxrl.algorithms.base import run_progress
from jaxrl.config import Config, ConfigError, NetworkConfig, NormalizeConfig
from jaxrl.envs.base import Discrete, EnvSpec
from jaxrl.networks import HeadOnTrunk, Network, NetworkOutput, QHead
from jaxrl.networks.distributions import MASKED_LOGIT, to_rank_of
from jaxrl.types import Acting, Array, LearnerState, PyTree

_TRUNK = "value"
# Of the ladder of epsilons.
_BASE = 0.4
_SPREAD = 7.0


@flax.struct.dataclass
class QOutput:
    """The value of each action.

    Attributes:
      q: float32[..., A]; forbidden actions are below all others.
      carry: after the last step.
      epsilon: float32[], the share of random actions; None: none.
    """

    q: Array
    carry: PyTree
    epsilon: Array | None

    @property
    def value(self) -> Array:
        """float32[...], of the best action."""
        return self.q.max(axis=-1)


@dataclass(frozen=True)
class QAgent(Agent):
    """Takes the action of the highest Q-value, or while it explores a random one with probability epsilon.

    Its extras are `value` float32[T, B], the Q-value of the best action when it acted.
    """

    spec: EnvSpec
    network: Network
    normalize_config: NormalizeConfig
    description: str
    needs_final_observations: bool = False
    samples: bool = False
    rescaled: bool = False

    @classmethod
    def build(
        cls,
        network: NetworkConfig,
        spec: EnvSpec,
        normalize: NormalizeConfig,
        dueling: bool = False,
        needs_final_observations: bool = False,
    ) -> Self:
        """The agent for an environment; ConfigError for an unknown name, or actions that are not discrete."""
        if not isinstance(spec.action_space, Discrete):
            raise ConfigError(
                "`algorithm` learns Q-values of discrete actions; "
                f"the actions of {spec.name!r} are {spec.action_space}"
            )
        heads = {"head": HeadOnTrunk(QHead(spec.action_space.n, dueling), _TRUNK)}
        description = f"{networks.describe_trunk(network, spec)}, {'dueling ' * dueling}q-values"
        built = networks.build(network, spec, heads)
        return cls(spec, built, normalize, description, needs_final_observations)

    def output(self, acting: Acting, out: NetworkOutput) -> QOutput:
        return QOutput(out.heads["head"], out.carry, acting.exploration)

    def draw_noise(self, key: Array, shape: tuple[int, ...], index: Array | int = 0) -> Array:
        return jax.random.uniform(key, (*shape, 2), jnp.float32)

    def choose(self, out: QOutput, noise: Array, few_kernels: bool = False) -> tuple[Array, dict[str, Array]]:
        action = self.greedy(out)
        if out.epsilon is not None:
            explores = noise[..., 0] < out.epsilon
            action = jnp.where(explores, random_action(out.q > MASKED_LOGIT / 2, noise[..., 1]), action)
        return action, {"value": out.value}

    def greedy(self, out: QOutput) -> Array:
        return jnp.argmax(out.q, axis=-1).astype(jnp.int32)

    def bootstrap(self, out: QOutput) -> Array:
        return out.value

    def finish(self, extras: dict[str, Array], has_choice: Array) -> dict[str, Array]:
        return extras | {"value": jnp.where(has_choice, extras["value"], jnp.nan)}

    def to_env(self, action: Array) -> Array:
        return action

    def facts(self, out: QOutput) -> tuple[Array, dict[str, Array]]:
        return out.value, {"q": out.q.astype(jnp.float32)}


def random_action(allowed: Array, noise: Array) -> Array:
    """int32[...], one of the actions allowed, bool[..., A], with equal probability; `noise` is in [0, 1)."""
    rank = jnp.cumsum(allowed.astype(jnp.int32), axis=-1)
    count = rank[..., -1]
    # Rounding may bring the product up to the count.
    chosen = jnp.minimum((noise * count.astype(jnp.float32)).astype(jnp.int32), count - 1)
    return jnp.argmax(rank > chosen[..., None], axis=-1).astype(jnp.int32)


def value_of(q: Array, action: Array) -> Array:
    """float32[...], the Q-value of `action` int32[...] from q [..., A]."""
    # Selecting by comparison: the gradient of an indexed read is a scatter, which is slow.
    chosen = action[..., None] == to_rank_of(q, jnp.arange(q.shape[-1], dtype=action.dtype))
    return jnp.sum(jnp.where(chosen, q, 0.0), axis=-1)


def next_value(target_q: Array, online_q: Array | None) -> Array:
    """float32[...], the value of what follows, from Q-values [..., A] of the target network.

    The network, whose Q-values are `online_q`, chooses the action (van Hasselt et al. 2016); if that is None,
    the target network does (Mnih et al. 2015).
    """
    chooser = target_q if online_q is None else online_q
    return value_of(target_q, jnp.argmax(chooser, axis=-1))


def n_step_target(total: Array, discount: Array, terminated: Array, value: Array) -> Array:
    """float32[...], sum_k gamma^k r_k + gamma^m V(s_m) after m steps; without V after a termination.

    `total` and `discount` are of `n_step_return`; `terminated` is True if the m-th step ended the episode.
    """
    return total + jnp.where(terminated, 0.0, discount * value)


def polyak_update(target: Array, params: Array, rate: Array) -> Array:
    """The target network's parameters after a move to the network's; exactly these at rate 1."""
    return rate * params + (1.0 - rate) * target


def falling_epsilon(config: Config, learner: LearnerState) -> Array:
    """float32[], linear in the updates made, or in time, from `exploration_start` to `exploration_end`."""
    h: Any = learner.hyperparams
    progress = run_progress(config, learner, h.exploration_fraction)
    return h.exploration_start + progress * (h.exploration_end - h.exploration_start)


def ladder(index: Array | int, num_envs: int) -> Array:
    """float32, 0.4^(1 + 7 i / (N - 1)), the epsilon of environment i of N, over all devices.

    Horgan et al. 2018.
    """
    share = jnp.asarray(index).astype(jnp.float32) / max(num_envs - 1, 1)
    return _BASE ** (1.0 + _SPREAD * share)


@dataclass(frozen=True)
class LadderQAgent(QAgent):
    """Explores in each environment by the ladder's epsilon, times the algorithm's, which is 1."""

    num_envs: int = 1  # over all devices

    def draw_noise(self, key: Array, shape: tuple[int, ...], index: Array | int = 0) -> Array:
        noise = super().draw_noise(key, shape, index)
        # `choose` compares with one number for all environments.
        return noise.at[..., 0].divide(ladder(index, self.num_envs))
