"""One episode of any environment, with a picture of every step."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs import registry
from jaxrl.envs.agents import MultiAgentEnv
from jaxrl.envs.agents.multi_agent import WholeEnv
from jaxrl.envs.base import EnvSpec, JaxEnv
from jaxrl.envs.host.worker import Problem
from jaxrl.envs.host.worker_env import WorkerFactory
from jaxrl.envs.host_env import HostFactory, HostOptions
from jaxrl.envs.pictures import CannotRender, Shot, draw, image_of, reports_of
from jaxrl.envs.tasks import default_arguments
from jaxrl.envs.wrappers.host import WrappedFactory

# Takes an action for each shot that is not the last.
Film = Generator[Shot, Any, None]
_CLOSE_TIMEOUT = 2.0  # seconds


def film(name: str, wrappers: Sequence[str], seed: int, task: Any = None) -> Film:
    """Plays one episode, on the device of `task` if one is given (`jaxrl.envs.tasks`).

    Pictures come from the environment (gymnax's visualizer, `rgb_array` of Gymnasium and PettingZoo, a
    `render(state)` of a custom device environment), else the observations if they are images.

    Raises:
      CannotRender: there is neither.
      HostEnvError: the environment failed.
    """
    if not registry.is_host(name):
        env = registry.make(name, wrappers)
        env = WholeEnv(cast(MultiAgentEnv, env)) if env.spec.agents else env
        return _film_device(env, seed, default_arguments(env) if task is None else (task,))
    factory = registry.make_host(name, wrappers)
    bare = factory.unwrapped if isinstance(factory, WrappedFactory) else factory
    if isinstance(bare, WorkerFactory):
        return film_worker_env(bare, seed, factory.decode)
    return _film_observations(factory, seed)


def _film_device(env: JaxEnv, seed: int, arguments: tuple[Any, ...]) -> Film:
    """Takes an action for each agent of a `WholeEnv`; actions of absent agents are ignored."""
    reset_key, key = jax.random.split(jax.random.key(seed))
    state, obs = jax.jit(env.reset)(reset_key, *arguments)
    step = jax.jit(env.step)
    drawn = env.env if isinstance(env, WholeEnv) else env
    fresh = np.ones(env.spec.num_agents, bool) if env.spec.agents else None
    over = False
    t = 0
    reward = 0.0
    names = [] if env.spec.agents else [report.name for report in env.spec.reports]
    reports = dict[str, float]()
    while True:
        mask = np.asarray(env.action_mask(state)) if env.spec.has_action_mask else None
        picture = partial(_picture, drawn, state, obs)
        action = yield Shot(jax.device_get(obs), mask, picture, over, reward, fresh, reports)
        state, timestep = step(jax.random.fold_in(key, t), state, jnp.asarray(action))
        obs = timestep.obs
        over = bool(timestep.done)
        t = t + 1
        reward = float(timestep.reported_reward.sum())
        reports = reports_of(jax.device_get(timestep.info), names)
        if (flags := timestep.team) is not None:
            fresh = np.asarray(~flags.took_part | flags.terminated | flags.truncated)


def _picture(env: JaxEnv, state: Any, obs: Any) -> np.ndarray:
    """The environment's own picture if it has one, else the observation."""
    try:
        if not hasattr(env, "render"):
            raise CannotRender(_reason(env.spec))
        return env.render(state)
    except CannotRender:
        if env.spec.agents or not image_of(env.spec.observation_space):
            raise
        return draw(np.asarray(obs), env.spec.observation_space)


def _film_observations(factory: HostFactory, seed: int) -> Film:
    if not image_of(factory.spec.observation_space):
        raise CannotRender(_reason(factory.spec))
    names = tuple(report.name for report in factory.spec.reports)
    env = factory.start(HostOptions(seeds=(seed,), info_keys=names))
    over = False
    try:
        while True:
            step = env.recv(0)
            obs = np.asarray(factory.decode(jnp.asarray(step.obs)))[0]
            over = bool(step.game_over[0])
            picture = partial(draw, obs, factory.spec.observation_space)
            reports = reports_of({name: x[0] for name, x in step.info.items()}, names)
            action = yield Shot(obs, None, picture, over, float(step.score[0]), reports=reports)
            env.send(0, np.asarray(action)[None])
    finally:
        env.close()


def _reason(spec: EnvSpec) -> str:
    return f"{spec.name} cannot be rendered: it has no pictures, and its observations are no images"


def film_worker_env(factory: WorkerFactory, seed: int, decode: Callable[[Any], Any]) -> Film:
    """An episode of a worker environment, run in this process, like `film`.

    `decode` makes of stored observations [N, ...] what the policy sees.

    Of several agents, each takes an action, also absent ones.
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
            picture = partial(_rendered, name, env)
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
    for driver in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):  # most are drawn by pygame, which needs neither
        os.environ.setdefault(driver, "dummy")
    try:
        return make(target, {**kwargs, "render_mode": "rgb_array"})
    except Exception as error:  # an environment without render_mode may raise any error
        raise CannotRender(f"{name} has no render_mode rgb_array: {_line(error)}") from error


def _close(env: Any) -> None:
    # In a thread: one that hangs there holds nothing up.
    closing = threading.Thread(target=env.close, daemon=True)
    closing.start()
    closing.join(_CLOSE_TIMEOUT)


def _rendered(name: str, env: Any) -> np.ndarray:
    try:
        found = env.render()
    except Exception as error:  # a missing package of the environment's, for example
        raise CannotRender(f"{name} cannot be rendered: {_line(error)}") from error
    if not isinstance(found, np.ndarray) or found.ndim != 3 or found.shape[-1] != 3:
        raise CannotRender(f"{name} draws nothing with render_mode rgb_array")
    return found


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
