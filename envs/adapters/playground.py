"""MuJoCo Playground (Zakka et al. 2025), MuJoCo's physics on the device, as `JaxEnv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxrl.envs.adapters.brax import PhysicsEnv
from jaxrl.envs.adapters.suite import load, refusals, suite_rules
from jaxrl.envs.names import changed_call, check_numbers, check_positive, unknown

_SUITE = "playground"


def names() -> Sequence[str]:
    """The DeepMind Control Suite, and robots if the suite has cloned their models."""
    registry = load("mujoco_playground", _SUITE).registry
    has_models = load("mujoco_playground._src.mjx_env", _SUITE).MENAGERIE_PATH.exists()
    return tuple(sorted(registry.ALL_ENVS if has_models else registry.dm_control_suite.ALL_ENVS))


def make(name: str, episode_length: int | None = None, impl: str = "jax", **kwargs: Any) -> PhysicsEnv:
    """Makes one of `names()`.

    Args:
      name: of the environment.
      episode_length: steps after which an episode is cut off; None: as in the environment's own
        configuration.
      impl: of MuJoCo: "jax", compiled with the rest of a program, or "warp", the suite's own default. Both
        run on every device; for a CPU Warp first compiles its kernels, which takes minutes.
      kwargs: fields of this configuration, such as `ctrl_dt=0.02`.
    """
    label = f"{_SUITE}:{name}"
    check_numbers(label, kwargs)
    registry = load("mujoco_playground", _SUITE).registry
    with suite_rules():
        config = registry.get_default_config(name)
    for key in kwargs.keys() - config.keys():
        raise unknown(f"argument of {label}", key, config.keys())
    limit = int(config.episode_length) if episode_length is None else episode_length
    check_positive(f"{label}: episode_length", limit)
    overrides = kwargs | {"impl": impl}
    with refusals(label, overrides, AttributeError, KeyError, TypeError, ValueError):
        env = registry.load(name, config_overrides=overrides)
        return PhysicsEnv(changed_call(label, make, locals()), env, limit)
