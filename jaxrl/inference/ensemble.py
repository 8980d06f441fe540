"""Policies of several runs that act together: as one pure function, and from Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.config import ConfigError
from jaxrl.envs.base import Box, Discrete, EnvSpec, MultiDiscrete
from jaxrl.envs.numbering import starts_of
from jaxrl.evaluation.policy_function import ActingFunction, PolicyFunction, PolicyMean
from jaxrl.inference import numpy_ensemble
from jaxrl.inference.loaded_policy import LoadedPolicy, action_program


@dataclasses.dataclass(frozen=True, eq=False)  # hashed by identity, as jit asks of functions
class EnsembleFunction(ActingFunction):
    """Several policies as one `(obs, carry, reset[, action_mask]) -> {"action", "value", ..., "carry"}`.

    The action is the best one by a mean over the members. With l_m the logits of member m, it is

        discrete:    argmax_a 1/M sum_m log softmax(l_m)_a, of each part of a vector by itself
        Q-values:    argmax_a 1/M sum_m Q_m(a)
        continuous:  1/M sum_m action_m

    The first is the logarithmic opinion pool (Genest and Zidek 1986), in which a member that thinks an action
    nearly impossible weighs more than one that thinks it likely.

    Arguments as in `PolicyFunction`; the carry has a tree for each member, `member_0` and so on.

    Result:
      action: [B, *A], what the environment takes.
      value: float32[B], the mean.
      distribution: the mean whose greedy action is taken, `logits` or `q`; for continuous actions each
        member's own, by its name.
      carry: tree like the argument.
    """

    members: Mapping[str, PolicyFunction]
    spec: EnvSpec
    mean: PolicyMean
    sample: bool = False

    @classmethod
    def of(cls, members: Sequence[PolicyFunction]) -> EnsembleFunction:
        """The ensemble; raises ConfigError if there are no members, or if they do not fit together."""
        if not members:
            raise ConfigError("`run` (=[]) must name a run")
        spec = members[0].spec
        if not isinstance(spec.action_space, Discrete | MultiDiscrete | Box):
            raise ConfigError("an action of several parts has no mean: load one run")
        for member in members:
            if _spaces(member.spec) != _spaces(spec):
                names = f"{member.spec.name} and {spec.name}"
                raise ConfigError(f"the runs must have the same spaces and wrappers; they have {names}")
        return cls({f"member_{i}": member for i, member in enumerate(members)}, spec, _mean_of(members))

    @property
    def parts(self) -> Mapping[str, PolicyFunction]:
        return {f"{name}.": member for name, member in self.members.items()}

    def with_parts(self, parts: Sequence[PolicyFunction]) -> EnsembleFunction:
        return dataclasses.replace(self, members=dict(zip(self.members, parts, strict=True)))

    def __call__(self, obs: Any, carry: Any, reset: jax.Array, *rest: jax.Array) -> dict[str, Any]:
        found = {name: member(obs, carry[name], reset, *rest) for name, member in self.members.items()}
        action, distribution = numpy_ensemble.choose(found, dataclasses.asdict(self.mean), jnp)
        return {
            "action": action.astype(found[next(iter(found))]["action"].dtype),
            "value": jnp.mean(jnp.stack([x["value"] for x in found.values()]), axis=0),
            "distribution": distribution,
            "carry": {name: x["carry"] for name, x in found.items()},
        }

    def example(self, batch: int) -> tuple[Any, ...]:
        examples = {name: member.example(batch) for name, member in self.members.items()}
        obs, _, reset, *mask = next(iter(examples.values()))
        return (obs, {name: example[1] for name, example in examples.items()}, reset, *mask)


def _spaces(spec: EnvSpec) -> tuple[Any, ...]:
    return spec.observation_space, spec.action_space, spec.has_action_mask


def _mean_of(members: Sequence[PolicyFunction]) -> PolicyMean:
    space = members[0].spec.action_space
    if isinstance(space, Box):
        return PolicyMean("actions", (), is_vector=True)
    assert isinstance(space, Discrete | MultiDiscrete)
    shapes = [jax.eval_shape(member, *member.example(1))["distribution"] for member in members]
    kinds = {kind for shape in shapes for kind in shape}
    if len(kinds) > 1:
        raise ConfigError("runs of Q-values and runs of probabilities have no common mean")
    if len({member.agent.rescaled for member in members}) > 1:
        rescaled = "runs whose Q-values are rescaled (`r2d2.value_rescaling`)"
        raise ConfigError(f"{rescaled} and others have no common mean")
    return PolicyMean(
        "q" if kinds == {"q"} else "log_probabilities",
        sizes=(space.n,) if isinstance(space, Discrete) else tuple(space.nvec),
        is_vector=isinstance(space, MultiDiscrete),
        start=starts_of(space),
    )


class EnsemblePolicy:
    """The policies of several runs, of the same spaces; networks and algorithms may differ.

    Of discrete actions it takes the one of the highest mean log-probability, or of the highest mean Q-value;
    continuous ones are the mean of the members' actions. All members act in one program.

        policy = jaxrl.load(["runs/a", "runs/b", "runs/c"])
        action, carry = policy.act(obs, carry)

    Attributes:
      spec: of the first member's environment.
    """

    def __init__(self, members: Sequence[LoadedPolicy]) -> None:
        """Raises ConfigError if there are none, or if they do not fit together."""
        self.members = tuple(members)
        function = EnsembleFunction.of([member.function for member in members])
        self.spec = function.spec
        self._program = action_program(function)

    def initial_carry(self, batch: int | None = None) -> tuple[Any, ...]:
        """The carry of each member at the start of an episode."""
        return tuple(member.initial_carry(batch) for member in self.members)

    def act(
        self, obs: Any, carry: Any = None, reset: Any = None, *, action_mask: Any = None
    ) -> tuple[Any, tuple[Any, ...]]:
        """Chooses actions at `obs`; arguments and results as in `LoadedPolicy.act`.

        Raises:
          ConfigError: something has the wrong shape or type.
        """
        carries = (None,) * len(self.members) if carry is None else carry
        if not isinstance(carries, tuple) or len(carries) != len(self.members):
            raise ConfigError("`carry` must be what `act` returned, or None")
        each = [
            member.arguments(obs, one, reset, action_mask)
            for member, one in zip(self.members, carries, strict=True)
        ]
        single, (obs_B, _, *rest) = each[0]
        carry_B = {f"member_{i}": given[1] for i, (_, given) in enumerate(each)}
        action, after = jax.device_get(self._program(obs_B, carry_B, *rest))
        carries = tuple(after[name] for name in carry_B)
        return (action[0], jax.tree.map(lambda x: x[0], carries)) if single else (action, carries)
