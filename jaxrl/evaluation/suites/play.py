"""Plays the levels of a suite."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from envs import registry
from envs.base import Dict, EnvSpec, HostOptions, Space
from envs.vector import VectorEnv
from jaxrl.config import ConfigError, environment_spec
from jaxrl.evaluation.evaluator import DeviceEvaluator
from jaxrl.evaluation.suites.definition import Level
from jaxrl.evaluation.trained_policy import TrainedPolicy
from jaxrl.rollout.episodes import DEFAULT_MAX_EPISODE_STEPS, Episodes
from jaxrl.rollout.host.episodes import HostPlayer, quotas

_MAX_HOST_ENVIRONMENTS = 32


@dataclasses.dataclass(frozen=True)
class Outcomes:
    """One row per episode; float64 or bool of [N].

    Attributes:
      score: the return, raw.
      length: steps.
      normalized: length over what counts as 1 in this level.
      finished: False where it was cut off by the safety limit.
      success: bool, or None without a rule.
      cost: summed over the episode, or None without one.
    """

    score: np.ndarray
    length: np.ndarray
    normalized: np.ndarray
    finished: np.ndarray
    success: np.ndarray | None
    cost: np.ndarray | None


def wrappers_of(trained: TrainedPolicy, level: Level) -> tuple[str, ...]:
    """The level's wrappers, or the run's."""
    return trained.config.env.wrappers if level.wrappers is None else level.wrappers


def check(trained: TrainedPolicy, level: Level, where: str) -> EnvSpec:
    """Makes sure that the policy can play the level, before anything is played.

    Raises:
      ConfigError: it cannot; the message begins with `where`.
    """
    name = f"`{where}.env` (={level.env!r})"
    spec = environment_spec(f"{where}.env", level.env, level.env, wrappers_of(trained, level))
    pairs = (("observations", "observation_space"), ("actions", "action_space"))
    for what, field in pairs:
        ours, theirs = (_form(getattr(x, field)) for x in (trained.spec, spec))
        if ours != theirs:
            raise ConfigError(f"{name} has {what} of {theirs}, the policy was trained on {ours}")
    if spec.has_action_mask != trained.spec.has_action_mask:
        raise ConfigError(f"{name} and the environment of the run must both have action masks, or neither")
    if level.info_keys:
        known = _info_of(level, wrappers_of(trained, level))
        for key in level.info_keys:
            if key not in known:
                reported = ", ".join(sorted(known)) or "nothing"
                raise ConfigError(f"{name} reports no {key!r} in its info, it reports {reported}")
    return spec


def _form(space: Space) -> str:
    """What a policy depends on: not the bounds."""
    if isinstance(space, Dict):
        return "{" + ", ".join(f"{key}: {_form(part)}" for key, part in space.spaces) + "}"
    if hasattr(space, "low"):
        return f"{np.dtype(space.dtype)}{list(space.shape)}"
    return str(space).replace(f", dtype={space.dtype!r}", "")


def _info_of(level: Level, wrappers: tuple[str, ...]) -> set[str]:
    if registry.is_host(level.env):
        return set()
    env = VectorEnv(registry.make(level.env, wrappers))

    def step() -> dict[str, jax.Array]:
        keys = jax.random.split(jax.random.key(0), 1)
        state, _ = env.reset(keys)
        space = env.spec.action_space
        assert not isinstance(space, Dict)
        return env.step(keys, state, jnp.zeros((1, *space.shape), space.dtype))[1].info

    return {key for key, x in jax.eval_shape(step).items() if x.shape == (1,)}


def play(trained: TrainedPolicy, level: Level, spec: EnvSpec, sample: bool, seed: int) -> Outcomes:
    """Plays exactly the level's episodes, a fixed share in each of some environments.

    Raises:
      HostEnvError: an environment failed.
    """
    run = _play_host if registry.is_host(level.env) else _play_device
    found = run(trained, level, sample, jax.random.key(seed))
    played = np.asarray(found.played)
    score = np.asarray(found.episode_return, np.float64)[played]
    length = np.asarray(found.length, np.float64)[played]
    success = None
    if level.success is not None:
        rule = level.success
        named = {"return": score, "length": length}
        subject = np.asarray(found.info_max[rule.subject])[played] if rule.is_info else named[rule.subject]
        success = np.asarray(rule.compare(subject, rule.bound))
    longest = level.steps or spec.max_episode_steps or DEFAULT_MAX_EPISODE_STEPS
    return Outcomes(
        score=score,
        length=length,
        normalized=length / longest,
        finished=np.asarray(found.finished)[played],
        success=success,
        cost=np.asarray(found.info_sum[level.cost], np.float64)[played] if level.cost else None,
    )


def _play_device(trained: TrainedPolicy, level: Level, sample: bool, key: jax.Array) -> Episodes:
    env = VectorEnv(registry.make(level.env, wrappers_of(trained, level)))
    evaluator = DeviceEvaluator(trained.policy, env, trained.topology, level.info_keys)
    return evaluator.play(trained.state, key, level.episodes, sample)


def _play_host(trained: TrainedPolicy, level: Level, sample: bool, key: jax.Array) -> Episodes:
    factory = registry.make_host(level.env, wrappers_of(trained, level))
    player = HostPlayer(trained.policy, factory, sample)
    num_envs = min(level.episodes, _MAX_HOST_ENVIRONMENTS)
    keys = jax.random.split(key, num_envs)
    seeds = jax.vmap(lambda key: jax.random.randint(key, (), 0, 2**31 - 1))(keys)
    options = HostOptions(seeds=tuple(map(int, seeds)))
    # Host environments are stepped by one device.
    state = jax.tree.map(jnp.asarray, jax.device_get(trained.state))
    return player.play(options, state, keys, quotas(num_envs, level.episodes))
