"""Brax (Freeman et al. 2021), rigid bodies on the device, as `JaxEnv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxrl.envs.adapters.physics import PhysicsEnv
from jaxrl.envs.adapters.suite import check_arguments, load, refusals
from jaxrl.envs.names import changed_call, check_positive

_EPISODE_LENGTH = 1000  # of the suite's own training wrappers


def names() -> Sequence[str]:
    """The environments that brax has registered."""
    return tuple(sorted(load("brax.envs", "brax")._envs))


def make(name: str, episode_length: int = _EPISODE_LENGTH, **kwargs: Any) -> PhysicsEnv:
    """Makes one of `names()`.

    Args:
      name: of the environment.
      episode_length: steps after which an episode is cut off.
      kwargs: of the environment's class, such as `backend="spring"`.
    """
    label = f"brax:{name}"
    check_arguments(label, kwargs)
    limit = check_positive(f"{label}: episode_length", episode_length)
    package = load("brax.envs", "brax")
    with refusals(label, kwargs, TypeError, ValueError):
        env = package.get_environment(name, **kwargs)
        return PhysicsEnv(changed_call(label, make, locals()), env, limit)
