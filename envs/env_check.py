"""`check_env`: an environment of a user, checked before anything trains on it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxrl.envs import modules, registry, trial
from jaxrl.envs.adapters import gymnasium
from jaxrl.envs.base import JaxEnv
from jaxrl.envs.behaviour import check_behaviour
from jaxrl.envs.checks import check_types
from jaxrl.envs.conversion import with_numbers_from_zero
from jaxrl.envs.foreign import api_of
from jaxrl.envs.host import gymnasium_slot
from jaxrl.envs.host.worker import Problem
from jaxrl.envs.host_env import HostEnvError, HostOptions

_STEPS = 100  # of an environment on the host


def check_env(env: JaxEnv | str | Any) -> None:
    """Checks a custom environment.

    Of one of the device: declarations, types, purity, the length of episodes, and values in episodes of
    random actions. Of one on the host: its spaces, and that resets and a hundred random steps conform to
    them.

    Args:
      env: a device environment, an environment of Gymnasium, or the name of any environment.

    Raises:
      ValueError: one line that names the environment, the method and the remedy.
    """
    if isinstance(env, str) and registry.is_host(env):
        try:
            trial.play(env, (), _STEPS)
        except HostEnvError as error:
            raise ValueError(str(error)) from error
        return
    if isinstance(env, type):
        raise ValueError(f"{env.__name__} is a class: check an environment of it, {env.__name__}(...)")
    label = env if isinstance(env, str) else type(env).__name__
    api = None if isinstance(env, str) else api_of(type(env))
    if api is not None and api.suite == "gymnasium":
        _check_gymnasium(label, env)
        return
    if api is not None:
        name = f"{type(env).__module__}:{type(env).__name__}"
        raise ValueError(f"{label} is not a JaxEnv; {api.advice(name)}")
    made = _made(env) if isinstance(env, str) else env
    registry.require(label, made, "spec", "reset", "step")
    check_types(label, made)
    check_behaviour(label, made if isinstance(env, str) else with_numbers_from_zero(made), finite=True)


def _made(name: str) -> JaxEnv:
    try:
        return registry.make(name)
    except (ValueError, ImportError):
        raise
    except Exception as error:  # of the environment's own code
        raise ValueError(f"{name}: making it raised {modules.one_line(error)}") from error


def _check_gymnasium(label: str, env: Any) -> None:
    """Resets and steps it here as its worker process would."""
    options = HostOptions(seeds=(0,))
    rng = np.random.default_rng(0)
    with _named(label):
        found = gymnasium_slot.description(env)
    factory = gymnasium.factory_of(label, "", {}, (), found)
    arrays = {name: np.zeros(*form) for name, form in factory.arrays(options).items()}
    with _named(label):
        slot = gymnasium_slot.make_slot(env, 0, factory.setup(options), arrays)
        for _ in range(_STEPS):
            slot.step()
            allowed = arrays["mask"][0] if factory.spec.has_action_mask else None
            arrays["action"][0] = trial.random_host_action(factory.spec.action_space, allowed, rng)


@contextlib.contextmanager
def _named(label: str) -> Iterator[None]:
    """Makes one line of what an environment raises, or does wrong."""
    try:
        yield
    except Problem as error:
        raise ValueError(f"{label} {error}") from error
    except Exception as error:
        raise ValueError(f"{label} raised {modules.one_line(error)}") from error
