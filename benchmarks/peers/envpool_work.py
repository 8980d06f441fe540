"""One envpool batch per work, for every trainer: synchronous, with the arrays that envpool gives."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class HostWork:
    """PPO on host environments; Adam, float32, gradients clipped to a norm of 0.5.

    Attributes:
      name: as given to `--work`.
      env: id of envpool.
      options: of envpool.
      network: "mlp" (64, 64, actor and critic apart), "nature" (512) or "impala-lstm" (256, LSTM 256).
      num_envs, rollout_length, num_minibatches, epochs: of an iteration.
      iterations: measured, after one to warm up.
    """

    name: str
    env: str
    options: tuple[tuple[str, Any], ...]
    network: str
    num_envs: int
    rollout_length: int
    num_minibatches: int
    epochs: int
    iterations: int


_ATARI = tuple({"repeat_action_probability": 0.25, "reward_clip": True, "episodic_life": True}.items())
WORKS = {
    work.name: work
    for work in (
        HostWork("cartpole", "CartPole-v1", (), "mlp", 64, 128, 4, 4, 20),
        HostWork("pong", "Pong-v5", _ATARI, "nature", 16, 128, 4, 4, 2),
        HostWork("coinrun", "CoinrunEasy-v0", (("num_levels", 200),), "impala-lstm", 32, 32, 4, 3, 2),
    )
}


def make(work: dict[str, Any], seed: int) -> Any:
    """The batch, with Gymnasium's interface."""
    if work["env"].startswith("Coinrun"):
        _load_qt()
    import envpool

    options = dict(work["options"])
    return envpool.make_gymnasium(work["env"], num_envs=work["num_envs"], seed=seed, **options)


def images(obs: np.ndarray) -> bool:
    """True if observations [N, ...] are images, channels first."""
    return obs.ndim == 4


def _load_qt() -> None:
    spec = importlib.util.find_spec("PyQt5.Qt5")
    folder = Path(next(iter(spec.submodule_search_locations)), "lib") if spec else Path()
    for name in ("icudata.so.56", "icuuc.so.56", "icui18n.so.56", "Qt5Core.so.5", "Qt5Gui.so.5"):
        ctypes.CDLL(str(folder / f"lib{name}"), ctypes.RTLD_GLOBAL)
