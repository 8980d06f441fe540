"""An episode of an environment that worker processes step elsewhere, in this process, drawn by itself."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from jaxrl.envs.host.worker import Problem
from jaxrl.envs.host.worker_env import WorkerFactory
from jaxrl.envs.host_env import HostOptions
from jaxrl.envs.pictures import CannotRender, Shot, reports_of

_CLOSE_TIMEOUT = 2.0  # seconds


def film_worker_env(
    factory: WorkerFactory, seed: int, decode: Callable[[Any], Any]
) -> Generator[Shot, Any, None]:
    """See `jaxrl.envs.filming.video`; `decode` makes of stored observations [N, ...] what the policy sees.

    Of several agents, each takes an action, also those that are not there.
    """
    name = factory.spec.name
    everything = slice(None)
    names = tuple(report.name for report in factory.spec.reports)
    options = HostOptions(seeds=(seed,), info_keys=names)
    module = importlib.import_module(f"jaxrl.envs.host.{factory.slot}")
    env = _make(name, module.make_env, factory.target, factory.kwargs)
    arrays = {key: np.zeros(*form) for key, form in factory.arrays(options).items()}
    if "task" in arrays:
        arrays["task"][:] = np.nan
    has_agents = bool(factory.spec.agents)
    try:
        slot = module.make_slot(env, 0, factory.setup(options), arrays)
        while True:
            slot.step()
            step = jax.tree.map(np.copy, factory.answer(arrays, everything, everything, names))
            whole = step.of_environments
            picture = partial(_picture, name, env)
            seen, mask = jax.device_get((decode(step.obs), factory.action_mask(step.obs)))
            if not has_agents:
                seen, mask = jax.tree.map(lambda x: x[0], (seen, mask))
            over = bool(whole.game_over[0])
            reward = float(whole.score[0])
            fresh = step.first if has_agents else None
            reports = {} if has_agents else reports_of({key: x[0] for key, x in whole.info.items()}, names)
            arrays["action"][:] = yield Shot(seen, mask, picture, over, reward, fresh, reports)
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
        raise CannotRender(f"{name} cannot be rendered: {_line(error)}") from error
    if not isinstance(found, np.ndarray) or found.ndim != 3 or found.shape[-1] != 3:
        raise CannotRender(f"{name} draws nothing with render_mode rgb_array")
    return found


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
