"""Videos of episodes, as GIF or MP4."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl.config import installation
from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.envs import filming, registry
from jaxrl.envs.base import EnvSpec
from jaxrl.envs.numbering import counted_from_zero, own_numbers
from jaxrl.envs.pictures import Shot
from jaxrl.evaluation.evaluator import EvaluationTask, agent_of
from jaxrl.evaluation.policy_function import PolicyFunction
from jaxrl.evaluation.trained_policy import TrainedPolicy
from jaxrl.types import PyTree

# A longer episode is cut; of a long one only every n-th step is shown.
MAX_STEPS = 2000
_LAST_FRAMES = 10  # of an episode that another one follows: half a second
MAX_FRAMES = 150
_WIDTH = 320  # pixels; of a small picture, which is enlarged by a whole number, up to twice as many
_MILLISECONDS = 50
ENDINGS = (".gif", ".mp4")
# What writes them, by the name that is imported.
_PACKAGES = {".gif": {"PIL": "pillow"}, ".mp4": {"PIL": "pillow", "av": "av"}}


def require_packages(ending: str = ".gif") -> None:
    """Raises ConfigError if what writes videos with that ending is not installed."""
    for module, package in _PACKAGES[ending].items():
        if importlib.util.find_spec(module) is None:
            raise ConfigError(f"`--video` needs the package {package}: {installation.command('video')}")


def write(
    trained: TrainedPolicy,
    task: EvaluationTask,
    sample: bool,
    seed: int,
    file: str,
    start: Any = None,
    episodes: int = 1,
) -> str:
    """Records episodes of a task, one after the other; returns a line with the video's path.

    Args:
      seed: decides the episode; of several, later ones have the next seeds.
      start: the task of the environment (`jaxrl.envs.tasks`); None: its default.
      episodes: how many.

    Raises:
      CannotRender: the environment cannot be rendered.
      ConfigError: the file cannot be written, or a package for that is missing.
      HostEnvError: the environment failed.
    """
    spec = registry.spec_of(task.env, task.wrappers)
    agent = agent_of(trained.config, trained.agent, spec)
    if agent is not trained.agent:
        trained = dataclasses.replace(trained, agent=agent, spec=spec)
    function = PolicyFunction.of(trained, sample)
    act = jax.jit(function)
    pictures: list[np.ndarray] = []
    steps = 0
    for number in range(episodes):
        film = filming.film(task.env, task.wrappers, seed + number, start)
        shown, length = _play(function, act, spec, film, seed + number)
        pictures += [*pictures[-1:] * _LAST_FRAMES, *shown]
        steps += length
    with errors_as(ConfigError, f"`--video`: {file} cannot be written", OSError):
        save(pictures, file)
    of = f"{episodes} episodes, {steps:,}" if episodes > 1 else f"{steps}"
    return f"video of {of} steps: {file} ({Path(file).stat().st_size / 1e3:.0f} kB)"


def _play(
    function: PolicyFunction, act: Callable[..., Any], spec: EnvSpec, film: filming.Film, seed: int
) -> tuple[list[np.ndarray], int]:
    """(pictures of an episode, its steps); `act` is `function`, compiled."""
    _, carry, *_ = function.example(spec.num_agents)
    pictures: list[np.ndarray] = []
    shot = next(film)
    reset = np.ones(spec.num_agents, bool)
    stride = 1
    try:
        for t in range(MAX_STEPS):
            if len(pictures) == MAX_FRAMES:
                pictures = pictures[::2]
                stride = 2 * stride
            if t % stride == 0 or shot.over:
                pictures.append(shot.picture())
            if shot.over:
                break
            out = act(*arguments(function, shot, carry, reset, (seed, t)))
            action = counted_from_zero(spec.action_space, np.asarray(out["action"]))
            shot = film.send(action if spec.agents else action[0])
            carry = out["carry"]
            reset = np.zeros(1, bool) if shot.fresh is None else shot.fresh
    finally:
        film.close()
    return pictures, t


def arguments(
    function: PolicyFunction, shot: Shot, carry: PyTree, reset: np.ndarray, key: tuple[int, int]
) -> list[Any]:
    """The arguments of a policy's function at a shot, a row for each agent."""
    obs, mask = shot.obs, shot.mask
    if not function.spec.agents:
        obs, mask = jax.tree.map(lambda x: np.asarray(x)[None], (obs, mask))
    rest = [] if mask is None else [mask]
    rest += [np.array(key, np.uint32)] if function.sample else []
    return [own_numbers(function.spec.observation_space, obs), carry, reset, *rest]


def save(pictures: Sequence[np.ndarray], file: str) -> None:
    """Writes a GIF or, by the ending, an MP4; small pictures are enlarged, large ones reduced.

    Raises:
      ConfigError: a package for that is missing.
      OSError: the file cannot be written.
    """
    ending = Path(file).suffix
    require_packages(ending)
    from PIL import Image

    height, width = pictures[0].shape[:2]
    factor = math.ceil(_WIDTH / width) if width < _WIDTH else _WIDTH / width
    size = round(width * factor), round(height * factor)
    how = Image.Resampling.NEAREST if factor > 1 else Image.Resampling.BILINEAR
    frames = [Image.fromarray(np.ascontiguousarray(x)).resize(size, how) for x in pictures]
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    if ending == ".mp4":
        _save_mp4([np.asarray(frame.convert("RGB")) for frame in frames], file)
        return
    few = [frame.quantize(64) for frame in frames]
    few[0].save(file, save_all=True, append_images=few[1:], duration=_MILLISECONDS, loop=0, optimize=True)


def _save_mp4(frames: Sequence[np.ndarray], file: str) -> None:
    """Writes frames, uint8 of shape [height, width, 3], as H.264."""
    import av

    height, width = frames[0].shape[:2]
    with av.open(file, "w") as container:
        stream = container.add_stream("libx264", rate=1000 // _MILLISECONDS)
        # Players want colours at half the resolution, which takes even sides.
        stream.width = width + width % 2
        stream.height = height + height % 2
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            padded = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
            container.mux(stream.encode(av.VideoFrame.from_ndarray(padded, format="rgb24")))
        container.mux(stream.encode())
