"""One envpool: the steps of a group of environments, and the library that some of them draw with."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# In the order in which they need one another.
_LIBRARIES = ("libicudata.so.56", "libicuuc.so.56", "libicui18n.so.56", "libQt5Core.so.5", "libQt5Gui.so.5")


def load_qt(label: str) -> bool:
    """True if Qt was loaded from the wheel just now, so that an import that failed before can succeed.

    Outside Linux, and if the system has Qt, it does nothing; ImportError names what to install.
    """
    # The second is true of the wheel as well, if it was loaded before.
    if not sys.platform.startswith("linux") or _load_libraries(["libQt5Gui.so.5"]):
        return False
    try:
        spec = importlib.util.find_spec("PyQt5.Qt5")
    except ModuleNotFoundError:
        spec = None
    folders = [Path(folder, "lib") for folder in (spec.submodule_search_locations or ())] if spec else []
    if not any(_load_libraries([str(folder / name) for name in _LIBRARIES]) for folder in folders):
        raise ImportError(
            f"{label} needs the libraries of Qt 5: pip install PyQt5-Qt5, "
            "or on Debian and Ubuntu: apt install libqt5gui5"
        )
    return True


def _load_libraries(libraries: list[str]) -> bool:
    try:
        for library in libraries:
            ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


class Pool:
    """One group: an envpool whose rows come in the order of the environments.

    envpool restarts single environments only in its asynchronous mode, where rows come as they finish. A
    pool that must cut first episodes off therefore has one environment more than rows, which never steps.
    """

    def __init__(
        self,
        name: str,
        options: dict[str, Any],
        seeds: tuple[int, ...],
        threads: int,
        cuts: tuple[int, ...] | None,
        info_keys: tuple[str, ...] = (),
    ):
        import envpool

        n = len(seeds)
        self.steps = 0
        self._info_keys = info_keys
        self._ids = np.arange(n, dtype=np.int32)
        self._cut_at = np.array(cuts) if cuts else None
        self._restart = np.zeros(n, bool)
        self._done = np.ones(n, bool)
        idle = [0] if cuts else []
        size = {"num_envs": n + len(idle), "batch_size": n, "num_threads": threads}
        self._env: Any = envpool.make_gymnasium(name, env_seed=[*seeds, *idle], **size, **options)
        with without_precision_warnings():
            _ = self._env.observation_space  # kept by envpool; `recv` asks for it
        self._env._reset(self._ids)  # the public `reset` would also wait for the result

    def send(self, action: np.ndarray) -> None:
        self.steps += 1
        if self._cut_at is None:
            self._env.send(action)
            return
        if self._restart.any():
            self._env._reset(self._ids[self._restart])
        going_on = ~self._restart
        if going_on.any():
            self._env.send(action[going_on], self._ids[going_on])

    def recv(self) -> tuple[Any, dict[str, Any]]:
        """Observations as envpool gives them, and the other fields of `HostStep`."""
        first = self._done
        if self.steps == 0:
            obs, info = self._env.recv(reset=True)
            reward = np.zeros(len(first), np.float32)
            terminated = ~first
            truncated = ~first
        else:
            obs, reward, terminated, truncated, info = self._env.recv()
        outcome = _outcome(reward, terminated, truncated, info)
        outcome["info"] = {key: info[key].astype(np.float32) for key in self._info_keys}
        if self._cut_at is not None:
            order = np.argsort(info["env_id"])
            obs, outcome = jax.tree.map(lambda x: x[order], (obs, outcome))
        # Not where info has elapsed_step == 0: counting continues after a lost life.
        for array in jax.tree.leaves(outcome):
            array[first] = 0
        outcome["first"] = first
        if self._cut_at is not None:
            done = outcome["terminated"] | outcome["truncated"]
            self._restart = ~done & (self.steps == self._cut_at)
            outcome["truncated"] |= self._restart
            outcome["game_over"] |= self._restart
            self._cut_at[done] = 0
        self._done = outcome["terminated"] | outcome["truncated"]
        return obs, outcome

    @property
    def is_settled(self) -> bool:
        """True once all first episodes that must be cut off have been."""
        is_cut = self._cut_at is None or bool((self._cut_at <= self.steps).all())
        return is_cut and not self._restart.any()

    def trace(self) -> np.ndarray | None:
        """Makes ready for `traced_send` and `traced_recv`; their first handle, or None if it cannot be.

        JAX without 64-bit types has no arrays for the 64-bit types of some environments.
        """
        try:
            specs = [spec for _, (_, both, _) in self._env._xla() for part in both for spec in part]
            if any(np.dtype(dtype) != jax.dtypes.canonicalize_dtype(dtype) for dtype, _ in specs):
                return None
            handle, self._traced_recv, self._traced_send, _ = self._env.xla()
        except RuntimeError:  # not on this platform
            return None
        return np.asarray(handle)

    def traced_send(self, handle: jax.Array, action: jax.Array) -> jax.Array:
        *_, spec = self._env.spec.action_array_spec.values()
        return self._traced_send(handle, action.astype(spec.dtype), self._ids)

    def traced_recv(self, handle: jax.Array, first: jax.Array) -> tuple[jax.Array, Any, dict[str, Any]]:
        """(handle, observations as envpool gives them, the other fields of `HostStep`)."""
        handle, (obs, reward, terminated, truncated, info) = self._traced_recv(handle)
        outcome = _outcome(reward, terminated, truncated, info)
        outcome["info"] = {key: info[key].astype(jnp.float32) for key in self._info_keys}
        if self._cut_at is not None:
            order = jnp.argsort(info["env_id"])
            obs, outcome = jax.tree.map(lambda x: x[order], (obs, outcome))
        outcome = jax.tree.map(lambda x: jnp.where(first, jnp.zeros_like(x), x), outcome)
        return handle, obs, outcome | {"first": first}


def _outcome(reward: Any, terminated: Any, truncated: Any, info: dict[str, Any]) -> dict[str, Any]:
    """The fields of `HostStep` that are as envpool gives them, of numpy or traced arrays."""
    outcome = {"reward": reward, "terminated": terminated, "truncated": truncated}
    if "lives" in info and "reward" in info:  # Atari tells clipped from raw, and lives from games
        return outcome | {"score": info["reward"], "game_over": info["terminated"].astype(bool) | truncated}
    return outcome | {"score": reward, "game_over": terminated | truncated}


@contextlib.contextmanager
def without_precision_warnings() -> Iterator[None]:
    """envpool gives gymnasium bounds in float64 for boxes of float32, and that is warned about."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*precision lowered by casting", UserWarning)
        yield
