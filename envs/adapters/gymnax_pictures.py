"""gymnax's own pictures of its environments."""

from __future__ import annotations

from typing import Any

import numpy as np

from envs.pictures import CannotRender

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
            return vis_gym.render_gym_frame(env.name, state, params)
        if env.name in _PLOTTED:
            return _plotted(env, params, state)
    except ImportError as error:
        raise CannotRender(f"{label} is drawn with a package that is missing: {error}") from error
    except Exception as error:
        # Gymnasium says so with an error of its own where pygame is missing.
        if type(error).__name__ != "DependencyNotInstalled":
            raise
        raise CannotRender(f"{label}: {' '.join(str(error).split())}; or -e '.[video]'") from error
    raise CannotRender(f"{label} cannot be drawn: gymnax has no picture of it")


def _plotted(env: Any, params: Any, state: Any) -> np.ndarray:
    import matplotlib.pyplot as plt
    from gymnax.visualize import Visualizer

    drawing = Visualizer(env, params, [state])
    try:
        drawing.init()
        drawing.fig.canvas.draw()
        return np.array(drawing.fig.canvas.buffer_rgba())[..., :3]
    finally:
        plt.close(drawing.fig)
