"""gymnax 1.x environments as `JaxEnv`, and custom ones with its API."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.adapters import gymnax_classes
from jaxrl.envs.adapters.suite import deferred_imports, implicit_promotion, like, load, numbers
from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, JaxEnv, Space, TimeStep
from jaxrl.envs.names import check_numbers, format_call, unknown
from jaxrl.envs.pictures import CannotRender
from jaxrl.envs.trees import strong_types

# Episodes of these end by termination at a known step, long before `params.max_steps_in_episode`.
_EPISODE_STEPS: dict[str, Callable[[Any, Any], int]] = {
    "Catch-bsuite": lambda env, params: env.rows - 1,
    "MemoryChain-bsuite": lambda env, params: params.memory_length + 1,
    "MNISTBandit-bsuite": lambda env, params: 1,
    "SimpleBandit-bsuite": lambda env, params: 1,
    "UmbrellaChain-bsuite": lambda env, params: params.chain_length,
}
# Drawn by matplotlib; the rest of what gymnax draws is observations that are images anyway.
_PLOTTED = ("Catch-bsuite", "FourRooms-misc", "MetaMaze-misc", "PointRobot-misc")


def names() -> Sequence[str]:
    return tuple(_gymnax().registered_envs)


def module_of(name: str, arguments: Mapping[str, Any]) -> str | None:
    return name.rpartition(":")[0] or None


def factory(name: str) -> type[Any]:
    return gymnax_classes.load(name)


class Gymnax(JaxEnv):
    """A gymnax environment without its automatic reset, which costs a reset at every step.

    Rewards become float32. Observations keep the dtype that the environment really returns, which is
    not always the one that its space declares. `info` is left out: its keys differ between environments. A
    custom environment's has the numeric entries.

    Args:
      name: one of `names()`, or `path.to.module:Class`, a class with gymnax's API.
      kwargs: each sets a field of its `EnvParams` or of its constructor.
    """

    def __init__(self, name: str, **kwargs: Any):
        self._env, self._params = _build(name, kwargs)
        self._is_own = ":" in name
        self.spec = EnvSpec(
            name=format_call(f"gymnax:{name}", kwargs),
            observation_space=_observation_space(self._env, self._params),
            action_space=_space(self._env.action_space(self._params)),
            max_episode_steps=_max_episode_steps(name, self._env, self._params),
        )
        if isinstance(self.spec.action_space, Dict):
            raise ValueError(f"gymnax:{name} has actions of several parts, which are not supported")
        self._action_dtype = self.spec.action_space.dtype

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        with implicit_promotion():
            obs, state = self._env.reset_env(key, self._params)
        return strong_types((state, obs))

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        action = jnp.asarray(action, self._action_dtype)
        with implicit_promotion():
            obs, state, reward, terminated, info = self._env.step_env(key, state, action, self._params)
            truncated = self._env.is_truncated(state, self._params)
        state, obs = strong_types((state, obs))
        return state, TimeStep(
            obs=obs,
            reward=jnp.asarray(reward, jnp.float32),
            terminated=jnp.asarray(terminated, bool),
            truncated=jnp.asarray(truncated, bool),
            info=numbers(info) if self._is_own else {},
        )

    def render(self, state: Any) -> np.ndarray:
        """uint8[height, width, 3], by gymnax's own visualizer.

        Raises:
          CannotRender: gymnax does not draw this environment, or a package that it draws with is missing.
        """
        name = self._env.name
        label = self.spec.name
        try:
            from gymnax.visualize import vis_gym

            if name in vis_gym.SUPPORTED_GYM_ENVS:
                return _drawn_by_gymnasium(name, self._params, state)
            if name in _PLOTTED:
                return _plot(self._env, self._params, state)
        except ImportError as error:
            raise CannotRender(f"{label} is drawn with a package that is missing: {error}") from error
        except Exception as error:
            # Gymnasium raises its own error if pygame is missing.
            if type(error).__name__ != "DependencyNotInstalled":
                raise
            text = " ".join(str(error).split())
            raise CannotRender(f"{label}: {text}; or 'jaxrl-recurrent[video]'") from error
        raise CannotRender(f"{label} cannot be rendered: gymnax has no picture of it")


make = Gymnax


def _build(name: str, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Returns the gymnax environment and its parameters, with `kwargs` set in the one or the other."""
    _gymnax()
    check_numbers(f"gymnax:{name}", kwargs)
    try:
        env, params = (gymnax_classes.instance if ":" in name else _registered)(name, kwargs)
    except OSError as error:
        raise ValueError(f"gymnax:{name} needs data that could not be downloaded: {error}") from error
    except (TypeError, AssertionError) as error:
        raise ValueError(f"gymnax:{name} refuses {kwargs}: {str(error) or 'invalid value'}") from error
    changes = {
        key: like(f"gymnax:{name}: {key}", value, getattr(params, key))
        for key, value in kwargs.items()
        if hasattr(params, key)
    }
    return env, dataclasses.replace(params, **changes)


def _registered(name: str, kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """An environment of gymnax's own and its default parameters; `kwargs` as of `gymnax_classes.instance`."""
    env, params = _gymnax().make(name)
    param_names = {field.name for field in dataclasses.fields(params)}
    constructor = {key: value for key, value in kwargs.items() if key not in param_names}
    if constructor:
        valid = inspect.signature(type(env)).parameters.keys() - {"args", "kwargs"}
        for key in constructor.keys() - valid:
            raise unknown(f"argument of gymnax:{name}", key, param_names | valid)
        env, params = _gymnax().make(name, **constructor)
    return env, params


def _gymnax() -> ModuleType:
    with deferred_imports("seaborn", "matplotlib", "matplotlib.pyplot", "matplotlib.colors"):
        return load("gymnax", "gymnax")


def _max_episode_steps(name: str, env: Any, params: Any) -> int | None:
    if ":" in name:
        state = jax.eval_shape(lambda: env.reset_env(jax.random.key(0), params))[1]
        if not gymnax_classes.has_limit(state, params):
            return None
    limit = int(params.max_steps_in_episode)
    if name not in _EPISODE_STEPS:
        return limit
    steps = int(_EPISODE_STEPS[name](env, params))
    if steps > limit:
        # The only reward comes with the last step: cut off before it there is nothing to learn.
        raise ValueError(
            f"gymnax:{name}: its episode of {steps} steps is longer than max_steps_in_episode (={limit}); "
            "set that too"
        )
    return steps


def _observation_space(env: Any, params: Any) -> Space:
    with implicit_promotion():
        obs, _ = jax.eval_shape(lambda: env.reset_env(jax.random.key(0), params))
    space = _space(env.observation_space(params))
    if isinstance(space, Box) and math.prod(space.shape) == math.prod(obs.shape):
        low, high = (np.reshape(bound, obs.shape) for bound in (space.low, space.high))
        return Box.of(low, high, obs.shape, obs.dtype.type)
    return space


def _space(space: Any) -> Space:
    from gymnax.environments import spaces

    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n), np.dtype(space.dtype).type)
    if isinstance(space, spaces.Box):
        low, high = map(_finite_or_infinite, (space.low, space.high))
        return Box.of(low, high, space.shape, np.dtype(space.dtype).type)
    if isinstance(space, spaces.Dict):
        return Dict(tuple((key, _space(part)) for key, part in sorted(space.spaces.items())))
    raise ValueError(f"gymnax space {space} is not supported")


def _finite_or_infinite(bound: Any) -> np.ndarray:
    """Undoes the habit of gymnax to write the largest float32 if there is no bound."""
    array = np.asarray(bound, np.float64)
    return np.where(np.abs(array) >= np.finfo(np.float32).max, np.copysign(np.inf, array), array)


def _drawn_by_gymnasium(name: str, params: Any, state: Any) -> np.ndarray:
    from gymnax.visualize import vis_gym

    env = _gymnasium_env(name)
    vis_gym.set_gym_params(env, name, params)
    env.state = vis_gym.get_gym_state(state, name)
    if hasattr(state, "last_u"):
        env.last_u = np.asarray(state.last_u, np.float64)
    return np.asarray(env.render())


@functools.lru_cache(maxsize=1)
def _gymnasium_env(name: str) -> Any:
    """Kept for the next picture: starting its renderer takes far longer than drawing."""
    import gymnasium

    # Neither a screen nor sound is needed, and SDL complains of machines without.
    for driver in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        os.environ.setdefault(driver, "dummy")
    env = gymnasium.make(name, render_mode="rgb_array")
    env.reset()
    return env.unwrapped


def _plot(env: Any, params: Any, state: Any) -> np.ndarray:
    import matplotlib.pyplot as plt
    from gymnax.visualize import Visualizer

    drawing = Visualizer(env, params, [state])
    try:
        drawing.init()
        drawing.fig.canvas.draw()
        return np.array(drawing.fig.canvas.buffer_rgba())[..., :3]
    finally:
        plt.close(drawing.fig)
