"""A policy as one pure function: observation and carry in, action and carry out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from envs.base import EnvSpec, Space, zeros
from jaxrl.evaluation.trained_policy import TrainedPolicy
from jaxrl.networks import Policy
from jaxrl.networks.distributions import draw_noise
from jaxrl.types import Array, PolicyState, PyTree


class NotPolymorphic(Exception):
    """A network can be written for a fixed batch size only. The message is one line."""


@dataclasses.dataclass(frozen=True, eq=False)  # hashed by identity, as jit asks of functions
class PolicyFunction:
    """`(obs, carry, reset[, action_mask][, key]) -> {"action", "value", "distribution", "carry"}`.

    Everything that acting needs is inside: the frozen normaliser, the network, the choice of the action and
    its clipping or squashing into the environment's bounds. Nothing is remembered: the carry goes in and
    comes out.

    Arguments, for a batch of B observations:
      obs: [B, *O], raw, of the environment's dtype; a dict where the space is one.
      carry: tree of [B, ...], zeros at first, then what the last call returned.
      reset: bool[B]; True where `obs` is the first of its episode. The carry counts as zeros there.
      action_mask: bool[B, A], the allowed actions; only where the environment has masks.
      key: uint32[2], the data of a threefry key, another one each call; only with `sample`.

    Result:
      action: [B, *A], what the environment takes; the most likely one, or drawn with `sample`.
      value: float32[B].
      distribution: dict of float32[B, ...]: `logits`, or `mean` and `log_std` (before clipping or squashing).
      carry: tree like the argument.
    """

    policy: Policy
    spec: EnvSpec
    state: PolicyState
    sample: bool = False

    @classmethod
    def of(cls, trained: TrainedPolicy, sample: bool = False) -> PolicyFunction:
        """On the default device alone."""
        state = jax.tree.map(jnp.asarray, jax.device_get(trained.state))
        return cls(trained.policy, trained.spec, state, sample)

    def __call__(self, obs: PyTree, carry: PyTree, reset: Array, *rest: Array) -> dict[str, Any]:
        mask = rest[0] if self.spec.has_action_mask else None
        out = self.policy.act(self.state, obs, carry, reset, mask)
        head = self.policy.head
        if self.sample:
            key = jax.random.wrap_key_data(rest[-1], impl="threefry2x32")
            noise = draw_noise(head.noise_kind, key, (*reset.shape, *head.noise_shape))
            action = out.distribution.sample(noise)
        else:
            action = out.distribution.mode()
        arrays = {
            field.name: getattr(out.distribution, field.name).astype(jnp.float32)
            for field in dataclasses.fields(out.distribution)  # type: ignore[arg-type]
            if field.metadata.get("pytree_node", True)
        }
        action = head.to_env(action)
        return {"action": action, "value": out.value, "distribution": arrays, "carry": out.carry}

    def example(self, batch: int) -> tuple[Any, ...]:
        """Arguments of zeros for a batch."""
        carry = self.policy.initial_carry(batch)
        arguments: list[Any] = [zeros(self.spec.observation_space, (batch,)), carry, jnp.ones(batch, bool)]
        if self.spec.has_action_mask:
            arguments.append(jnp.ones((batch, self.spec.mask_size), bool))
        if self.sample:
            arguments.append(jnp.zeros(2, jnp.uint32))
        return tuple(arguments)

    def inputs(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        """The arrays of `arguments` by flat names: `obs`, `carry.policy.h`, `reset`, ..."""
        names = ["obs", "carry", "reset", *self.extras]
        return {name: x for part, tree in zip(names, arguments, strict=True) for name, x in flat(tree, part)}

    @property
    def extras(self) -> list[str]:
        """The arguments after `reset`."""
        return ["action_mask"] * self.spec.has_action_mask + ["key"] * self.sample


def flat(tree: PyTree, name: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a tree of dicts, by their path: `carry.policy.h`."""
    if not isinstance(tree, dict):
        yield name, tree
        return
    for key in sorted(tree):
        yield from flat(tree[key], f"{name}.{key}" if name else key)


def normalized_names(space: Space) -> list[str]:
    """The parts of an observation that a normaliser scales, by flat names, in the normaliser's order."""
    return [name for name, x in flat(zeros(space), "obs") if jnp.issubdtype(x.dtype, jnp.floating)]


def signature(arrays: dict[str, Any], batched: bool = True) -> dict[str, Any]:
    """Shapes and dtypes as JSON values; the batch dimension is `"batch"`."""

    def shape(name: str, x: Any) -> list[Any]:
        return ["batch", *x.shape[1:]] if batched and name != "key" else list(x.shape)

    return {name: {"shape": shape(name, x), "dtype": str(x.dtype)} for name, x in arrays.items()}
