"""Several policies as one pure function, and as one export."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config import ConfigError
from jaxrl.config.sections import GREEDY
from jaxrl.envs.base import Box, Discrete, EnvSpec, MultiDiscrete
from jaxrl.envs.numbering import own_numbers, starts_of
from jaxrl.evaluation import trained_policy
from jaxrl.evaluation.policy_function import ActingFunction, PolicyFunction, PolicyMean
from jaxrl.evaluation.trained_policy import TrainedPolicy
from jaxrl.inference import export

LOG_PROBABILITIES = "log_probabilities"
Q_VALUES = "q"
ACTIONS = "actions"


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

    members: tuple[PolicyFunction, ...]
    spec: EnvSpec
    policy_mean: PolicyMean
    sample: bool = False

    @classmethod
    def of(cls, members: Sequence[PolicyFunction]) -> EnsembleFunction:
        """The ensemble of members with the same spaces; networks and algorithms may differ.

        Raises:
          ConfigError: there are none, or they do not fit together.
        """
        if not members:
            raise ConfigError("`run` (=[]) must name a run")
        spec = members[0].spec
        if not isinstance(spec.action_space, Discrete | MultiDiscrete | Box):
            raise ConfigError("an action of several parts has no mean: load one run")
        for member in members:
            if _spaces(member.spec) != _spaces(spec):
                names = f"{member.spec.name} and {spec.name}"
                raise ConfigError(f"the runs must have the same spaces and wrappers; they have {names}")
        return cls(tuple(members), spec, _mean_of(members))

    @property
    def mean(self) -> PolicyMean:
        return self.policy_mean

    @property
    def parts(self) -> Mapping[str, PolicyFunction]:
        return {f"{name}.": member for name, member in self._functions_by_name.items()}

    def with_parts(self, parts: Sequence[PolicyFunction]) -> EnsembleFunction:
        return dataclasses.replace(self, members=tuple(parts))

    def __call__(self, obs: Any, carry: Any, reset: jax.Array, *rest: jax.Array) -> dict[str, Any]:
        found = {
            name: member(obs, carry[name], reset, *rest) for name, member in self._functions_by_name.items()
        }
        action, distribution = self._choose_action(found)
        return {
            "action": action.astype(found[next(iter(found))]["action"].dtype),
            "value": _mean([x["value"] for x in found.values()]),
            "distribution": distribution,
            "carry": {name: x["carry"] for name, x in found.items()},
        }

    def example(self, batch: int) -> tuple[Any, ...]:
        obs, _, reset, *mask = self.members[0].example(batch)
        carry = {name: member.example(batch)[1] for name, member in self._functions_by_name.items()}
        return (obs, carry, reset, *mask)

    @property
    def _functions_by_name(self) -> dict[str, PolicyFunction]:
        return {f"member_{i}": member for i, member in enumerate(self.members)}

    def _choose_action(self, found: Mapping[str, Any]) -> tuple[jax.Array, dict[str, Any]]:
        """(action, distribution)."""
        if self.mean.of == ACTIONS:
            distributions = {name: x["distribution"] for name, x in found.items()}
            return _mean([x["action"] for x in found.values()]), distributions
        kind = "q" if self.mean.of == Q_VALUES else "logits"
        each = [x["distribution"][kind] for x in found.values()]
        ends = np.cumsum(self.mean.sizes)[:-1]
        means = [
            _mean(part if kind == "q" else [jax.nn.log_softmax(x) for x in part])
            for part in zip(*(jnp.split(x, ends, axis=-1) for x in each), strict=True)
        ]
        best = [x.argmax(axis=-1) for x in means]
        action = jnp.stack(best, axis=-1) if self.mean.is_vector else best[0]
        own = own_numbers(self.spec.action_space, action)
        return own, {kind: jnp.concatenate(means, axis=-1)}


def _mean(each: Sequence[jax.Array]) -> jax.Array:
    return jnp.mean(jnp.stack(each), axis=0)


def _spaces(spec: EnvSpec) -> tuple[Any, ...]:
    return spec.observation_space, spec.action_space, spec.has_action_mask


def _mean_of(members: Sequence[PolicyFunction]) -> PolicyMean:
    space = members[0].spec.action_space
    if isinstance(space, Box):
        return PolicyMean(ACTIONS, (), is_vector=True)
    assert isinstance(space, Discrete | MultiDiscrete)
    shapes = [jax.eval_shape(member, *member.example(1))["distribution"] for member in members]
    kinds = {kind for shape in shapes for kind in shape}
    if len(kinds) > 1:
        raise ConfigError("runs of Q-values and runs of probabilities have no common mean")
    if len({member.agent.rescaled for member in members}) > 1:
        raise ConfigError(
            "runs whose Q-values are rescaled (`r2d2.value_rescaling`) and others have no common mean"
        )
    return PolicyMean(
        Q_VALUES if kinds == {"q"} else LOG_PROBABILITIES,
        sizes=(space.n,) if isinstance(space, Discrete) else tuple(space.nvec),
        is_vector=isinstance(space, MultiDiscrete),
        start=starts_of(space),
    )


def export_ensemble(
    runs: Sequence[str],
    kind: str,
    output: str,
    checkpoint: str = "best",
    batch: int | None = None,
    steps: int = 200,
    trust: bool = False,
) -> export.Exported:
    """Exports the ensemble of some runs and checks it; arguments and errors as in `export.export`.

    It plays the environment of the first run, and the members' actions are greedy.
    """
    policies = [trained_policy.load(run, checkpoint, devices=1, trust=trust) for run in runs]
    function = EnsembleFunction.of([PolicyFunction.of(policy) for policy in policies])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        description = write(policies, function, folder, kind, batch)
        return export.check_export(function, folder, description, Path(output), policies, steps, batch)


def write(
    policies: Sequence[TrainedPolicy],
    function: EnsembleFunction,
    folder: Path,
    kind: str,
    batch: int | None = None,
) -> dict[str, Any]:
    """Writes an export without checking it; returns the content of policy.json.

    Raises:
      ConfigError, RunError: as for `export.export`.
    """
    files, sizes = export.write_files(function, folder, kind, batch)
    members = {f"member_{i}": export.facts(policy) for i, policy in enumerate(policies)}
    description = {
        **export.describe_function(function, policies[0].config, kind),
        "mode": GREEDY,
        "mean": dataclasses.asdict(function.mean),
        "members": members,
        "files": files,
        "batch": sizes,
    }
    (folder / export.DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n")
    return description
