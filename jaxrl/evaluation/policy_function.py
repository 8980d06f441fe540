"""A policy as one pure function: observation and carry in, action and carry out."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import algorithms
from jaxrl.algorithms import Agent
from jaxrl.algorithms.agent import quantities
from jaxrl.config import Config
from jaxrl.config.environment import spec_of
from jaxrl.envs.base import Dict, Discrete, EnvSpec, MultiDiscrete, Space, zeros
from jaxrl.envs.numbering import counted_from_zero, own_numbers
from jaxrl.evaluation.trained_policy import TrainedPolicy
from jaxrl.types import Acting, Array, PyTree

_ROWS = 64  # batch size at which the FLOPs of a forward pass are counted


@dataclasses.dataclass(frozen=True)
class PolicyMean:
    """The mean by which several policies act together.

    Attributes:
      of: log_probabilities, q or actions.
      sizes: the number of choices of each part of a discrete action; () of a continuous one.
      is_vector: True if an action has several parts, or could have.
      start: the environment's first number of each part; () if all are 0.
    """

    of: str
    sizes: tuple[int, ...]
    is_vector: bool
    start: tuple[int, ...] = ()


class ActingFunction(abc.ABC):
    """A pure function that acts: a `PolicyFunction`, or several that act together.

    Attributes:
      sample: True if actions are sampled, from a key.
      mean: the mean of the policies, None of a single one.
    """

    spec: EnvSpec
    sample: bool
    mean: PolicyMean | None = None

    @property
    @abc.abstractmethod
    def parts(self) -> Mapping[str, PolicyFunction]:
        """The policies that it consists of, by the prefix of their names: `""`, or `member_0.` and so on."""

    @abc.abstractmethod
    def with_parts(self, parts: Sequence[PolicyFunction]) -> ActingFunction:
        """The same of other policies, in the order of `parts`."""

    def with_states(self, states: Sequence[Acting]) -> ActingFunction:
        """The same of other states, in the order of `parts`."""
        both = zip(self.parts.values(), states, strict=True)
        return self.with_parts([dataclasses.replace(part, state=state) for part, state in both])

    @abc.abstractmethod
    def __call__(self, obs: PyTree, carry: PyTree, reset: Array, *rest: Array) -> dict[str, Any]:
        """Arguments and result are as for `PolicyFunction`."""

    @abc.abstractmethod
    def example(self, batch: int) -> tuple[Any, ...]:
        """Arguments of zeros for a batch."""

    def inputs(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        """The arrays of `arguments` by flat names: `obs`, `carry.policy.h`, `reset`, ..."""
        names = ["obs", "carry", "reset", *self.extras]
        return {name: x for part, tree in zip(names, arguments, strict=True) for name, x in flat(tree, part)}

    @property
    def extras(self) -> list[str]:
        """The arguments after `reset`."""
        return ["action_mask"] * self.spec.has_action_mask + ["key"] * self.sample


@dataclasses.dataclass(frozen=True, eq=False)  # hashed by identity, as jit asks of functions
class PolicyFunction(ActingFunction):
    """`(obs, carry, reset[, action_mask][, key]) -> {"action", "value", "distribution", "carry"}`.

    Everything that acting needs is inside: the frozen normaliser, the network, the choice of the action and
    its clipping or squashing into the environment's bounds. Nothing is remembered: the carry goes in and
    comes out.

    Arguments, for a batch of B observations:
      obs: [B, *O], raw, of the environment's dtype and in its own numbers; a dict if the space is one.
      carry: tree of [B, ...], zeros at first, then what the last call returned.
      reset: bool[B]; True if `obs` is the first of its episode. The carry counts as zeros there.
      action_mask: bool[B, A], the allowed actions; only if the environment has masks.
      key: uint32[2], the data of a threefry key, another one each call; only with `sample`.

    Result:
      action: [B, *A], what the environment takes, in its own numbers; greedy, or sampled with `sample`.
      value: float32[B].
      distribution: dict of float32[B, ...]: `logits`, or `mean` and `log_std` (before scaling, clipping or
        squashing), all three of a mixture, or `q`.
      carry: tree like the argument.
    """

    agent: Agent
    spec: EnvSpec
    state: Acting
    sample: bool = False

    @property
    def parts(self) -> Mapping[str, PolicyFunction]:
        return {"": self}

    def with_parts(self, parts: Sequence[PolicyFunction]) -> PolicyFunction:
        (found,) = parts
        return found

    @classmethod
    def of(cls, trained: TrainedPolicy, sample: bool = False) -> PolicyFunction:
        """With the parameters that acting needs, on the default device; ConfigError if it cannot sample."""
        agent = trained.agent
        if sample:
            agent.require_samples()
        acting = dataclasses.replace(trained.state, params=agent.acting_params(trained.state.params))
        return cls(agent, trained.spec, jax.tree.map(jnp.asarray, jax.device_get(acting)), sample)

    @classmethod
    def untrained(cls, config: Config) -> PolicyFunction:
        """With fresh parameters: acts as fast as a trained one; ConfigError if the network does not suit."""
        spec = spec_of(config.env)
        agent = algorithms.build_agent(config, spec)
        return cls(agent, spec, jax.jit(agent.init)(jax.random.key(0)))

    @classmethod
    def without_parameters(cls, agent: Agent, spec: EnvSpec) -> PolicyFunction:
        """One that knows the shapes of its parameters, and acts not."""
        return cls(agent, spec, jax.eval_shape(agent.init, jax.random.key(0)))

    def __call__(self, obs: PyTree, carry: PyTree, reset: Array, *rest: Array) -> dict[str, Any]:
        mask = rest[0] if self.spec.has_action_mask else None
        seen = counted_from_zero(self.spec.observation_space, obs)
        out = self.agent.forward(self._acting, seen, carry, reset, mask)
        if self.sample:
            key = jax.random.wrap_key_data(rest[-1], impl="threefry2x32")
            action, _ = self.agent.choose(out, self.agent.draw_noise(key, reset.shape))
        else:
            action = self.agent.greedy(out)
        value, distribution = self.agent.facts(out)
        action = own_numbers(self.spec.action_space, self.agent.to_env(action))
        return {"action": action, "value": value, "distribution": distribution, "carry": out.carry}

    @functools.cached_property
    def _acting(self) -> Acting:
        """`state`, with what follows from its parameters computed once for all calls."""
        with jax.ensure_compile_time_eval():
            return jax.jit(self.agent.prepare)(self.state) if self.agent.network.prepare else self.state

    def example(self, batch: int) -> tuple[Any, ...]:
        carry = self.agent.initial_carry(batch)
        arguments: list[Any] = [zeros(self.spec.observation_space, (batch,)), carry, jnp.ones(batch, bool)]
        if self.spec.has_action_mask:
            arguments.append(jnp.ones((batch, self.spec.mask_size), bool))
        if self.sample:
            arguments.append(jnp.zeros(2, jnp.uint32))
        return tuple(arguments)

    def random_observations(self, batch: int) -> PyTree:
        """Observations in numpy: normally distributed for boxes of floats, else any valid values."""
        space = self.spec.observation_space
        return own_numbers(space, _random(space, batch))

    def forward_flops(self) -> float:
        """Floating-point operations of the network for one observation, as XLA counts them.

        Without operations on parameters alone, which are made once for many steps (`Agent.prepare`), and
        without what a CPU computes beside it to be faster.
        """
        acting = jax.eval_shape(self.agent.prepare, self.state)
        obs, carry, reset, *rest = jax.eval_shape(lambda: self.example(_ROWS))
        mask = rest[0] if self.spec.has_action_mask else None
        traced = jax.jit(self.agent.forward).trace(acting, obs, carry, reset, mask)
        # On CPU, for one, kernels of convolutions are widened by zeros.
        elsewhere = ("cuda",) if jax.default_backend() == "cpu" else None
        cost: Any = traced.lower(lowering_platforms=elsewhere).cost_analysis()
        return float(cost["flops"]) / _ROWS

    def preparation_flops(self) -> float:
        """Floating-point operations of `Agent.prepare`; 0 if nothing is prepared."""
        if self.agent.network.prepare is None:
            return 0.0
        cost: Any = jax.jit(self.agent.prepare).lower(self.state).cost_analysis()
        return float(cost["flops"])


def _random(space: Space, batch: int) -> Any:
    rng = np.random.default_rng(0)
    if isinstance(space, Dict):
        return {key: _random(part, batch) for key, part in space.spaces}
    shape = (batch, *space.shape)
    if isinstance(space, Discrete | MultiDiscrete):
        high = space.n if isinstance(space, Discrete) else np.array(space.nvec)
        return rng.integers(0, high, shape).astype(space.dtype)
    if jnp.issubdtype(space.dtype, jnp.floating):
        return rng.normal(size=shape).astype(space.dtype)
    return rng.integers(0, 2, shape).astype(space.dtype)


def unit_of_densities(config: Config) -> float | tuple[float, ...]:
    """`jaxrl.networks.Head.unit` of a policy that has a head, such as a clone."""
    agent: Any = algorithms.build_agent(config, spec_of(config.env))
    return agent.head.unit


def flat(tree: PyTree, name: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a tree of dicts, by their path: `carry.policy.h`."""
    if not isinstance(tree, dict):
        yield name, tree
        return
    for key in sorted(tree):
        yield from flat(tree[key], f"{name}.{key}" if name else key)


def normalized_names(space: Space) -> list[str]:
    """The parts of an observation that a normaliser scales, by flat names, in the normaliser's order."""
    example = quantities(space, zeros(space))
    return [name for name, x in flat(example, "obs") if jnp.issubdtype(x.dtype, jnp.floating)]
