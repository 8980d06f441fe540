"""gymnax's own pictures of its environments."""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np

from jaxrl.envs.pictures import CannotRender

# Drawn by matplotlib; the rest of what gymnax draws is observations that are images anyway.
_PLOTTED = ("Catch-bsuite", "FourRooms-misc", "MetaMaze-misc", "PointRobot-misc")


def picture(label: str, env: Any, params: Any, state: Any) -> np.ndarray:
    """uint8[height, width, 3] of one state.

    Raises:
      CannotRender: gymnax does not draw this environment, or a package that it draws with is missing.
    """
    try:
        from gymnax.visualize import vis_gym

        if env.name in vis_gym.SUPPORTED_GYM_ENVS:
            return _drawn_by_gymnasium(env.name, params, state)
        if env.name in _PLOTTED:
            return _plot(env, params, state)
    except ImportError as error:
        raise CannotRender(f"{label} is rendered with a missing package: {error}") from error
    except Exception as error:
        # Gymnasium raises its own error where pygame is missing.
        if type(error).__name__ != "DependencyNotInstalled":
            raise
        raise CannotRender(f"{label}: {' '.join(str(error).split())}; or 'jaxrl-recurrent[video]'") from error
    raise CannotRender(f"{label} cannot be rendered: gymnax has no picture of it")


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
