"""An episode of an environment of Gymnasium or PettingZoo in this process, drawn by itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from jaxrl.envs.adapters.gymnasium import GymnasiumFactory
from jaxrl.envs.adapters.pettingzoo import PettingZooFactory
from jaxrl.envs.host import gymnasium_slot, parallel_slot
from jaxrl.envs.host.spaces import observation_tree
from jaxrl.envs.host.worker import Problem, Reader, action_of
from jaxrl.envs.host_env import HostOptions
from jaxrl.envs.pictures import CannotRender, Shot

_CLOSE_TIMEOUT = 2.0  # seconds


def film_gymnasium(
    factory: GymnasiumFactory, seed: int, decode: Callable[[Any], Any]
) -> Generator[Shot, Any, None]:
    """See `jaxrl.envs.filming.film`; `decode` makes of [1, ...] observations what the policy sees."""
    name = factory.spec.name
    env = _make(name, gymnasium_slot.make_env, factory.name, factory.kwargs)
    arrays = [np.zeros(leaf["shape"], leaf["stored"]) for leaf in factory.obs_leaves]
    readers = [Reader(leaf, array) for leaf, array in zip(factory.obs_leaves, arrays, strict=True)]
    try:
        obs, info = env.reset(seed=seed)
        over, reward = False, 0.0
        while True:
            for reader in readers:
                reader.read(obs)
            row = observation_tree(factory.obs_leaves, [array[None].copy() for array in arrays])
            if factory.masks:
                row = {"mask": None, "obs": row}
            seen = jax.tree.map(lambda x: np.asarray(x)[0], decode(row))
            mask = None
            if factory.masks:
                mask = gymnasium_slot.mask_of(env, factory.masks, info, factory.spec.mask_size, over)
            action = yield Shot(seen, mask, partial(_picture, name, env), over, reward)
            stored = np.asarray(action, factory.action_leaf["stored"])
            obs, rewarded, terminated, truncated, info = env.step(action_of(factory.action_leaf, stored))
            reward = float(rewarded)
            over = bool(terminated or truncated)
    except Problem as error:
        raise CannotRender(f"{name} {error}") from error
    finally:
        _close(env)


def film_parallel(
    factory: PettingZooFactory, seed: int, decode: Callable[[Any], Any]
) -> Generator[Shot, Any, None]:
    """As `film_gymnasium`, with an action for each agent, also for those that are not there."""
    name, options = factory.spec.name, HostOptions(seeds=(seed,))
    env = _make(name, parallel_slot.make_env, factory.target, factory.kwargs)
    arrays = {key: np.zeros(*form) for key, form in factory.arrays(options).items()}
    everything = slice(None)
    try:
        slot = parallel_slot.make_slot(env, 0, factory.setup(options), arrays)
        while True:
            slot.step()
            step = jax.tree.map(np.copy, factory.answer(arrays, everything, everything, ()))
            team, picture = step.of_environments, partial(_picture, name, env)
            seen, mask = jax.device_get((decode(step.obs), factory.action_mask(step.obs)))
            over, reward = bool(team.game_over[0]), float(team.score[0])
            arrays["action"][:] = yield Shot(seen, mask, picture, over, reward, step.first)
    except Problem as error:
        raise CannotRender(f"{name} {error}") from error
    finally:
        _close(env)


def _make(name: str, make: Callable[..., Any], target: str, kwargs: Mapping[str, Any]) -> Any:
    for driver in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):  # pygame draws most, and needs neither
        os.environ.setdefault(driver, "dummy")
    try:
        return make(target, {**kwargs, "render_mode": "rgb_array"})
    except Exception as error:  # an environment that knows no render_mode may say so in any way
        raise CannotRender(f"{name} has no render_mode rgb_array: {_line(error)}") from error


def _close(env: Any) -> None:
    # In a thread: one that hangs there holds nothing up.
    closing = threading.Thread(target=env.close, daemon=True)
    closing.start()
    closing.join(_CLOSE_TIMEOUT)


def _picture(name: str, env: Any) -> np.ndarray:
    try:
        found = env.render()
    except Exception as error:  # a missing package of the environment's, for example
        raise CannotRender(f"{name} cannot be drawn: {_line(error)}") from error
    if not isinstance(found, np.ndarray) or found.ndim != 3 or found.shape[-1] != 3:
        raise CannotRender(f"{name} draws nothing with render_mode rgb_array")
    return found


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
