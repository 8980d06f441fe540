"""One episode of any environment, with a picture of every step."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs import registry
from jaxrl.envs.agents import MultiAgentEnv, WholeEnv
from jaxrl.envs.base import EnvSpec, JaxEnv
from jaxrl.envs.host.worker import Problem
from jaxrl.envs.host.worker_env import WorkerFactory
from jaxrl.envs.host_env import HostEnv, HostFactory, HostOptions, HostStep, StartedEnv
from jaxrl.envs.pictures import CannotRender, Shot, draw, image_of, reports_of
from jaxrl.envs.tasks import default_arguments
from jaxrl.envs.wrappers.host import WrappedFactory

# Takes an action for each shot that is not the last.
Film = Generator[Shot, Any, None]
_CLOSE_TIMEOUT = 2.0  # seconds


def film(name: str, wrappers: Sequence[str], seed: int, task: Any = None) -> Film:
    """Plays one episode, on the device of `task` if one is given (`jaxrl.envs.tasks`).

    Pictures come from the environment (gymnax's visualizer, `rgb_array` of Gymnasium and PettingZoo, a
    `render(state)` of a custom device environment), else the observations if they are images; CannotRender
    if there is neither. HostEnvError: the environment failed.
    """
    if not registry.is_host(name):
        env = registry.make(name, wrappers)
        env = WholeEnv(cast(MultiAgentEnv, env)) if env.spec.agents else env
        return _film_device(env, seed, default_arguments(env) if task is None else (task,))
    return _film_host(registry.make_host(name, wrappers), seed)


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
    try:
        if not hasattr(env, "render"):
            raise CannotRender(_reason(env.spec))
        return env.render(state)
    except CannotRender:
        if env.spec.agents or not image_of(env.spec.observation_space):
            raise
        return draw(np.asarray(obs), env.spec.observation_space)


def _film_host(factory: HostFactory, seed: int) -> Film:
    """Takes an action for each agent, also absent ones."""
    spec = factory.spec
    bare = factory.unwrapped if isinstance(factory, WrappedFactory) else factory
    names = tuple(report.name for report in spec.reports)
    options = HostOptions(seeds=(seed,), info_keys=names)
    if isinstance(bare, WorkerFactory):
        played: HostEnv = _LocalEnv(bare, options)
    elif image_of(spec.observation_space):
        played = bare.start(options)
    else:
        raise CannotRender(_reason(spec))
    env = factory.around(played) if isinstance(factory, WrappedFactory) else played
    try:
        while True:
            step = jax.tree.map(np.copy, env.recv(0))
            whole = step.of_environments
            seen, mask = jax.device_get((env.decode(step.obs), env.action_mask(step.obs)))
            if not spec.agents:
                seen, mask = jax.tree.map(lambda x: x[0], (seen, mask))
            observed = partial(draw, seen, spec.observation_space)
            drawn = played.picture if isinstance(played, _LocalEnv) else observed
            fresh = step.first if spec.agents else None
            reports = {} if spec.agents else reports_of({key: x[0] for key, x in whole.info.items()}, names)
            over = bool(whole.game_over[0])
            action = yield Shot(seen, mask, drawn, over, float(whole.score[0]), fresh, reports)
            env.send(0, np.asarray(action) if spec.agents else np.asarray(action)[None])
    finally:
        env.close()


class _LocalEnv(StartedEnv):
    """An environment of a worker in this process, which can be drawn here."""

    num_envs = num_groups = 1
    timeout = None

    def __init__(self, factory: WorkerFactory, options: HostOptions):
        self.spec = factory.spec
        self.factory: WorkerFactory = factory
        self._info_keys = options.info_keys
        module = importlib.import_module(f"jaxrl.envs.host.{factory.slot}")
        for driver in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):  # most are drawn by pygame, which needs neither
            os.environ.setdefault(driver, "dummy")
        try:
            self._env = module.make_env(factory.target, {**factory.kwargs, "render_mode": "rgb_array"})
        except Exception as error:  # an environment without render_mode may raise any error
            text = f"{self.spec.name} has no render_mode rgb_array: {_line(error)}"
            raise CannotRender(text) from error
        self._arrays = {key: np.zeros(*form) for key, form in factory.arrays(options).items()}
        if "task" in self._arrays:
            self._arrays["task"][:] = np.nan
        self._slot = module.make_slot(self._env, 0, factory.setup(options), self._arrays)

    def send(self, group: int, action: np.ndarray) -> None:
        self._arrays["action"][:] = action

    def recv(self, group: int) -> HostStep:
        try:
            self._slot.step()
        except Problem as error:
            raise CannotRender(f"{self.spec.name} {error}") from error
        return self.factory.answer(self._arrays, slice(None), slice(None), self._info_keys)

    def picture(self) -> np.ndarray:
        try:
            found = self._env.render()
        except Exception as error:  # a missing package of the environment's, for example
            raise CannotRender(f"{self.spec.name} cannot be rendered: {_line(error)}") from error
        if not isinstance(found, np.ndarray) or found.ndim != 3 or found.shape[-1] != 3:
            raise CannotRender(f"{self.spec.name} draws nothing with render_mode rgb_array")
        return found

    def interrupt(self) -> None:
        """Nothing can end a step of this process."""

    def close(self) -> None:
        if sys.is_finalizing():  # an episode that a script left open: a thread would not start any more
            return
        # In a thread: one that hangs there holds nothing up.
        closing = threading.Thread(target=self._env.close, daemon=True)
        closing.start()
        closing.join(_CLOSE_TIMEOUT)


def _reason(spec: EnvSpec) -> str:
    return f"{spec.name} cannot be rendered: it has no pictures, and its observations are no images"


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
