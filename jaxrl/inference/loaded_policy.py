"""A trained policy that acts from Python: numpy in, numpy out."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

import jax
import numpy as np

from jaxrl.config import Config, ConfigError
from jaxrl.config.errors import errors_as
from jaxrl.config.fields import at_least, between, check, shorten
from jaxrl.envs.base import Dict, Discrete, EnvSpec, Mixed, MultiDiscrete, Space, zeros
from jaxrl.envs.spaces import bounds, has_choice
from jaxrl.envs.wrappers.agents import CENTRAL, OWN
from jaxrl.evaluation import trained_policy
from jaxrl.evaluation.policy_function import ActingFunction, PolicyFunction, flat
from jaxrl.evaluation.trained_policy import TrainedPolicy
from jaxrl.inference.serving.arrays_of_spaces import cast

if TYPE_CHECKING:
    from jaxrl.inference.ensemble import EnsemblePolicy


@overload
def load(
    run: str | os.PathLike[str], checkpoint: str | int = "best", seed: int = 0, trust: bool = False
) -> LoadedPolicy: ...


@overload
def load(
    run: list[Any] | tuple[Any, ...], checkpoint: str | int = "best", seed: int = 0, trust: bool = False
) -> EnsemblePolicy: ...


def load(
    run: str | os.PathLike[str] | list[Any] | tuple[Any, ...],
    checkpoint: str | int = "best",
    seed: int = 0,
    trust: bool = False,
) -> LoadedPolicy | EnsemblePolicy:
    """Reads the policy of a run, or the policies of several, which then act together.

    Args:
      run: the run's folder, local or gs://; or a list of them, for an `EnsemblePolicy`.
      checkpoint: "best" (by evaluation during training; the latest of a run without any), "latest" or a step.
      seed: decides the sampled actions, from 0 to 2**32 - 1.
      trust: import the modules that the run's configuration names (`module:Class`), which can run any code.

    Raises:
      ConfigError: the folder is no run, it has no such checkpoint, or it names modules and is not trusted.
      CheckpointError: the checkpoint is damaged.
    """
    check("seed", seed, int, between(0, 2**32 - 1))
    if not run or not isinstance(run, str | os.PathLike | list | tuple):
        raise ConfigError(f"`run` (={run!r}) must name a run")
    if isinstance(run, list | tuple):
        from jaxrl.inference.ensemble import EnsemblePolicy

        return EnsemblePolicy([load(one, checkpoint, seed, trust) for one in run])
    policy = trained_policy.load(
        os.path.expanduser(run), str(checkpoint), devices=1, trust=trust, trust_said_by="trust=True"
    )
    return LoadedPolicy(policy, seed)


class LoadedPolicy:
    """A policy of a run; what it remembers of an episode is the carry, which goes in and comes out.

        policy = jaxrl.load("runs/mine")
        carry = None  # an episode begins
        while ...:
            action, carry = policy.act(obs, carry)

    Attributes:
      spec: spaces of the environment it was trained on, with the run's wrappers.
      mode: greedy or sampled: what was better in the evaluations during training.
    """

    def __init__(self, trained: TrainedPolicy, seed: int = 0) -> None:
        self.config: Config = trained.config
        self.spec: EnvSpec = trained.spec
        self.step = trained.step
        self.mode = trained.mode
        self._trained = trained
        zeros_of = trained.agent.initial_carry
        self._initial_carry = functools.cache(
            lambda batch: jax.tree.map(np.asarray, jax.device_get(zeros_of(batch)))
        )
        self._program = functools.cache(lambda sample: action_program(PolicyFunction.of(trained, sample)))
        self._seed = seed
        self._draws = itertools.count()

    def __getattr__(self, name: str) -> Any:
        hint = ": it is act(obs, carry, reset)" if name == "predict" else ""
        raise AttributeError(f"a loaded policy has no `{name}`{hint}")

    def __repr__(self) -> str:
        return f"<LoadedPolicy: {self._trained.folder}, {self._trained.checkpoint}, {self.mode}>"

    def initial_carry(self, batch: int | None = None) -> Any:
        """The carry at the start of an episode: zeros, [batch, ...], or [...] for a single observation."""
        if batch is not None:
            check("batch", batch, int, at_least(1))
        carry = self._initial_carry(batch or 1)
        return jax.tree.map(np.copy, carry if batch else _first(carry))

    def act(
        self,
        obs: Any,
        carry: Any = None,
        reset: Any = None,
        *,
        action_mask: Any = None,
        sample: bool | None = None,
    ) -> tuple[Any, Any]:
        """Chooses actions at `obs`.

        Args:
          obs: one observation [*O], or a batch [B, *O], raw; a dict if the space is one. After training
            with `network.central_value` the agent's own observation will do.
          carry: the carry that the call before returned; None if an episode begins.
          reset: bool, or bool[B]: where `obs` is the first of its episode, so that the carry counts as
            zeros. None: nowhere, or everywhere without a carry.
          action_mask: bool[A] or bool[B, A], the allowed actions, if the environment has masks; of several
            components also a list of theirs.
          sample: True samples the action, False takes the greedy one; None as in `mode`.

        Returns:
          (action [*A] or [B, *A] as the environment takes it, by name if it has several parts; carry for the
          next call), in numpy arrays.

        Raises:
          ConfigError: something has the wrong shape, type or value, named in the message; or the policy
            has nothing to sample.
        """
        if sample is not None:
            check("sample", sample, bool)
        single, arguments = self.arguments(obs, carry, reset, action_mask)
        if draws := self._trained.draws(sample):
            arguments.append(np.array([self._seed, next(self._draws)], np.uint32))
        action, after = jax.device_get(self._program(draws)(*arguments))
        if isinstance(space := self.spec.action_space, Mixed):
            action = space.parts(action)
        return (_first(action), _first(after)) if single else (action, after)

    def judge(
        self, obs: Any, carry: Any = None, reset: Any = None, *, action_mask: Any = None
    ) -> dict[str, Any]:
        """The numbers that `act` chooses from, by `PolicyFunction`'s names, [B, ...] also for one `obs`.

        Arguments and errors as in `act`.
        """
        _, arguments = self._arguments(obs, carry, reset, action_mask)
        return jax.device_get(self._judgement(*arguments))

    @functools.cached_property
    def _judgement(self) -> Any:
        return _program(self.function)

    def arguments(self, obs: Any, carry: Any, reset: Any, action_mask: Any) -> tuple[bool, list[Any]]:
        """(whether `obs` is one observation, the arrays that the policy acts by, [B, ...]).

        Arguments and errors as in `act`.
        """
        return self._arguments(self._with_central(obs), carry, reset, action_mask)

    @functools.cached_property
    def function(self) -> PolicyFunction:
        """The policy as a pure function that takes the best actions."""
        return PolicyFunction.of(self._trained)

    def _with_central(self, obs: Any) -> Any:
        """With zeros for a missing global state: only values depend on it."""
        if not self.config.network.central_value or (isinstance(obs, dict) and CENTRAL in obs):
            return obs
        space = self.spec.observation_space
        assert isinstance(space, Dict)
        own = _cast_all("obs", obs, space[OWN])
        x = jax.tree.leaves(own)[0]
        part = jax.tree.leaves(_plain(space[OWN]))[0]
        leading = x.shape[: x.ndim - len(part.shape)]
        return {CENTRAL: jax.tree.map(np.asarray, zeros(space[CENTRAL], leading)), OWN: own}

    def _arguments(self, obs: Any, carry: Any, reset: Any, mask: Any) -> tuple[bool, list[Any]]:
        """(whether `obs` is one observation, arguments of the policy's function, [B, ...])."""
        single, batch, obs_B = self._batch(obs)
        lift = (lambda x: np.asarray(x)[None]) if single else np.asarray
        expected = self._initial_carry(batch)
        carry_B = expected if carry is None else _check_carry(jax.tree.map(lift, carry), expected)
        if reset is None:
            reset_B = np.full(batch, carry is None)
        else:
            given = _check_shape("reset", _flags("reset", reset), () if single else (batch,))
            reset_B = np.broadcast_to(given, (batch,))
        return single, [obs_B, carry_B, reset_B, *self._mask(mask, lift, batch)]

    def _batch(self, obs: Any) -> tuple[bool, int, Any]:
        """(whether it is one observation, how many there are, [B, *O] of the space's dtype)."""
        space = self.spec.observation_space
        parts = _cast_all("obs", obs, space)
        arrays = jax.tree.leaves(_plain(space))
        leading = {
            jax.tree_util.keystr(path, simple=True, separator="."): x.shape[: x.ndim - len(array.shape)]
            for (path, x), array in zip(jax.tree.leaves_with_path(parts), arrays, strict=True)
        }
        if len({*leading.values()}) > 1:
            raise ConfigError(f"`obs` must have one batch dimension for all keys, it has {leading}")
        single = not next(iter(leading.values()))
        lifted = jax.tree.map(lambda x: x[None] if single else x, parts)
        return single, len(jax.tree.leaves(lifted)[0]), lifted

    def _mask(self, mask: Any, lift: Any, batch: int) -> list[np.ndarray]:
        if not self.spec.has_action_mask:
            if mask is not None:
                raise ConfigError("`action_mask` is given, but the environment of the run has no masks")
            return []
        if mask is None:
            raise ConfigError("`action_mask` is missing: the environment of the run has masks")
        space = self.spec.action_space
        assert isinstance(space, Discrete | MultiDiscrete)
        components = space.nvec if isinstance(space, MultiDiscrete) else ()
        if len(components) > 1 and isinstance(mask, list | tuple) and len(mask) == len(components):
            parts = [_flags("action_mask", part) for part in mask]
            if [part.shape[-1:] for part in parts] == [(n,) for n in components]:
                mask = np.concatenate(parts, axis=-1)
        found = _check_shape("action_mask", lift(_flags("action_mask", mask)), (batch, self.spec.mask_size))
        if not np.asarray(has_choice(space, found)).all():
            component = " of each component" if isinstance(space, MultiDiscrete) else ""
            raise ConfigError(f"`action_mask` must allow an action{component} in each row")
        return [found]


def action_program(function: ActingFunction) -> Any:
    """The compiled function with `action` and `carry` alone: nothing else is computed."""
    return _program(function, lambda out: (out["action"], out["carry"]))


def _program(function: ActingFunction, result: Callable[[dict[str, Any]], Any] = lambda out: out) -> Any:
    """The compiled function, with the parameters as an argument rather than as constants."""
    compiled = jax.jit(lambda states, *arguments: result(function.with_states(states)(*arguments)))
    states = [part.state for part in function.parts.values()]
    return lambda *arguments: compiled(states, *arguments)


def _plain(space: Space) -> Any:
    """The spaces of arrays in a space, as the tree of an observation."""
    return {key: _plain(part) for key, part in space.spaces} if isinstance(space, Dict) else space


def _cast_all(name: str, given: Any, space: Space) -> Any:
    """Observations of a space, see `_cast`; a dict of them by key for a `Dict`."""
    if not isinstance(space, Dict):
        return _cast(name, given, space)
    keys = [key for key, _ in space.spaces]
    if not isinstance(given, dict) or sorted(given) != sorted(keys):
        raise ConfigError(f"`{name}` must be a dict of {', '.join(keys)}")
    return {key: _cast_all(f"{name}[{key!r}]", given[key], part) for key, part in space.spaces}


def _cast(name: str, given: Any, space: Space) -> np.ndarray:
    """`arrays_of_spaces.cast`, of whose errors ConfigErrors are made."""
    assert not isinstance(space, Dict)
    low, high = None, None
    if isinstance(space, Discrete | MultiDiscrete):
        low, high = (bound.astype(int) for bound in bounds(space))
    with errors_as(ConfigError, "", ValueError):
        return cast(name, given, tuple(space.shape), np.dtype(space.dtype), low, high)


def _flags(name: str, given: Any) -> np.ndarray:
    """Bools, from bools or numbers; of text each but "" would be True."""
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise ConfigError(f"`{name}` must be an array of bool: {error}") from error
    if array.dtype.kind not in "biuf" or np.isnan(array).any():
        raise ConfigError(f"`{name}` (={shorten(given)}) must be bool")
    return array.astype(bool)


def _check_carry(carry: Any, expected: Any) -> Any:
    if jax.tree.structure(carry) != jax.tree.structure(expected):  # type: ignore[operator]
        raise ConfigError("`carry` must be what `act` returned, or None")
    for (name, x), (_, like) in zip(flat(carry), flat(expected), strict=True):
        _check_shape(f"carry {name}", x, like.shape)
        if not np.can_cast(x.dtype, like.dtype, "same_kind"):
            raise ConfigError(f"`carry {name}` is of {x.dtype}, it must be of {like.dtype}")
    return carry


def _check_shape(name: str, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if x.shape != shape:
        wanted = f"it must be {list(shape)} with these `obs`"
        raise ConfigError(f"`{name}` has the shape {list(x.shape)}, {wanted}")
    return x


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[0], tree)
