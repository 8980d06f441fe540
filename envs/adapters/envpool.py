"""envpool environments, batches of C++ environments stepped by threads, as `HostEnv`."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs import installation
from jaxrl.envs.adapters.envpool_pool import Pool, load_qt, without_precision_warnings
from jaxrl.envs.adapters.suite import like
from jaxrl.envs.base import Box, Dict, EnvSpec, Space
from jaxrl.envs.host.spaces import action_leaf, observation_space, observation_tree, select_leaves, space_of
from jaxrl.envs.host.worker import Leaf, Problem, describe
from jaxrl.envs.host_env import HostEnvError, HostOptions, HostStep, StartedEnv, TracedSteps, group_rows
from jaxrl.envs.names import LARGEST_INT32, check_positive, format_call, unknown
from jaxrl.envs.numbering import own_numbers

# Options that this adapter sets itself, or that envpool derives from the name: another task's would not fit
# its files, and envpool ends the process if a file is missing.
_RESERVED = set(
    "num_envs batch_size num_threads max_num_players thread_affinity_offset base_path seed env_seed "
    "gym_reset_return_info env_name task xml_file".split()
)
# envpool takes any number for these and then hangs or reads past its arrays.
_POSITIVE = set("frame_skip frame_stack img_height img_width max_episode_steps noop_max stack_num".split())
# Larger ones make observations that no memory holds, and envpool tries.
_LARGEST = {"frame_stack": 128, "img_height": 2048, "img_width": 2048, "stack_num": 128}
_NO_LIMIT = 2**30  # envpool writes a number of this size if there is no time limit


class EnvpoolFactory:
    """An environment of envpool with checked options; ImportError without its libraries.

    Args:
      name: an id of envpool, e.g. `Pong-v5`.
      keys: if observations are dicts, the parts to keep; all if empty.
      kwargs: options of envpool, e.g. `episodic_life=True, reward_clip=True`.
    """

    def __init__(self, name: str, /, keys: Sequence[str] = (), **kwargs: Any):
        label = f"envpool:{format_call(name, kwargs)}"
        spec, self.options = _checked_spec(name, label, kwargs)
        self.name = name
        self.info_keys = _info_keys(spec)
        try:
            with without_precision_warnings():
                leaves = describe(spec.observation_space)
                action = action_leaf(describe(spec.action_space))
                for leaf in (*leaves, action):
                    space_of(leaf)
        except (Problem, ValueError) as error:
            raise ValueError(f"{label} has spaces that are not supported: {error}") from error
        self.leaves = select_leaves(label, leaves, tuple(keys))
        images: list[Any] = [_is_channels_first(space_of(leaf)) for leaf in self.leaves]
        self._is_image = observation_tree(self.leaves, images)
        self.action_dtype = np.dtype(action["dtype"])
        limit = int(getattr(spec.config, "max_episode_steps", 0))
        self.spec = EnvSpec(
            name=label,
            observation_space=_channels_last(observation_space(self.leaves)),
            action_space=space_of(action),
            max_episode_steps=limit if 0 < limit < _NO_LIMIT else None,
            # Of Atari, whose stacks were checked; other suites' stacks may differ.
            stacked_frames=int(spec.config.stack_num) if _suite_of(name) == "envpool.atari" else 1,
        )

    def decode(self, obs: Any) -> Any:
        return jax.tree.map(
            lambda is_image, x: jnp.moveaxis(x, -3, -1) if is_image else x, self._is_image, obs
        )

    def action_mask(self, obs: Any) -> None:
        """Environments of envpool have none."""

    def require_info(self, key: str) -> None:
        if key not in self.info_keys:
            raise unknown(f"entry of the info of {self.spec.name}", key, self.info_keys)

    def start(self, options: HostOptions) -> EnvpoolEnv:
        return EnvpoolEnv(self, options)


make = EnvpoolFactory


class EnvpoolEnv(StartedEnv):
    """B environments, one pool of threads per group; see `HostEnv`.

    Atari's score is the unclipped reward, and its game is over with the last life, not with each.
    """

    def __init__(self, factory: EnvpoolFactory, start: HostOptions):
        self.spec = factory.spec
        self.factory: EnvpoolFactory = factory
        self.num_envs = len(start.seeds)
        self.num_groups = start.num_groups
        self.timeout = start.timeout
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        # Every pool may use all cores: while one group waits for the policy, the other has them.
        threads = min(start.num_workers // start.num_groups or cores, self.num_envs // self.num_groups)
        self.pools: list[Pool] = []
        for group in range(start.num_groups):
            rows = group_rows(self, group)
            seeds, cuts = start.seeds[rows], start.first_episode_steps and start.first_episode_steps[rows]
            self.pools.append(Pool(factory.name, factory.options, seeds, threads, cuts, start.info_keys))

    def send(self, group: int, action: np.ndarray) -> None:
        with self._failures(group):
            own = own_numbers(self.spec.action_space, np.asarray(action))
            self.pools[group].send(own.astype(self.factory.action_dtype, copy=False))

    def recv(self, group: int) -> HostStep:
        with self._failures(group):
            obs, outcome = self.pools[group].recv()
        arrays = [_part(obs, leaf) for leaf in self.factory.leaves]
        for array, leaf in zip((*arrays, outcome["reward"]), (*self.factory.leaves, None), strict=True):
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                row = int(np.argmin(np.isfinite(array.reshape(len(array), -1)).all(axis=1)))
                raw = array[row] if leaf is None else _raw_part(obs, leaf)[row]
                index = group_rows(self, group).start + row
                fits = not np.isfinite(raw).all()
                self.refuse(index, self.pools[group].steps, is_reward=leaf is None, fits=fits)
        return HostStep(observation_tree(self.factory.leaves, arrays), **outcome)

    def traced(self) -> TracedSteps | None:
        handles = [handle for pool in self.pools if (handle := pool.trace()) is not None]
        return _Traced(self, handles) if len(handles) == len(self.pools) else None

    def interrupt(self) -> None:
        """Nothing can end a call into C++."""

    def close(self) -> None:
        self.pools.clear()  # their threads end with the last reference

    @contextlib.contextmanager
    def _failures(self, group: int) -> Iterator[None]:
        if not self.pools:
            raise HostEnvError(f"{self.spec.name}: is closed")
        step = self.pools[group].steps
        try:
            yield
        except Exception as error:  # whatever C++ throws
            self.close()
            text = " ".join(str(error).split()) or type(error).__name__
            rows = group_rows(self, group)
            where = f"environments {rows.start} to {rows.stop - 1}, step {step}"
            raise HostEnvError(f"{self.spec.name}, {where}: {text}") from error

    def refuse(self, index: int, step: int, is_reward: bool, fits: bool = True) -> None:
        """Closes everything and raises HostEnvError for a number of that environment.

        It was not finite, or unless it `fits`, is not in 32 bits.
        """
        self.close()
        what = "a reward" if is_reward else "an observation"
        problem = "that is not finite" if fits else "with a number that float32 cannot hold"
        raise HostEnvError(f"{self.spec.name}, environment {index}, step {step}: returned {what} {problem}")


class _Traced(TracedSteps):
    """See `TracedSteps`; steps the environments of an `EnvpoolEnv`."""

    def __init__(self, env: EnvpoolEnv, handles: list[np.ndarray]):
        self.handles = handles
        self._env = env
        self._leaves = env.factory.leaves

    @property
    def is_ready(self) -> bool:
        if not self._env.pools:
            raise HostEnvError(f"{self._env.spec.name}: is closed")
        return all(pool.is_settled for pool in self._env.pools)

    def send(self, group: int, handle: jax.Array, action: jax.Array) -> jax.Array:
        own = own_numbers(self._env.spec.action_space, action)
        return self._env.pools[group].traced_send(handle, own)

    def recv(self, group: int, handle: jax.Array, first: jax.Array) -> tuple[jax.Array, HostStep, jax.Array]:
        handle, obs, outcome = self._env.pools[group].traced_recv(handle, first)
        arrays = [_part(obs, leaf) for leaf in self._leaves]
        finite = jnp.ones_like(first)
        for array in arrays:
            if jnp.issubdtype(array.dtype, jnp.floating):
                finite &= jnp.isfinite(array.reshape(len(array), -1)).all(axis=1)
        return handle, HostStep(observation_tree(self._leaves, arrays), **outcome), finite

    def stepped(self, reward: np.ndarray, finite: np.ndarray) -> None:
        bad = np.argwhere(~finite | ~np.isfinite(reward))
        if len(bad):
            t, index = bad[0].tolist()
            self._env.refuse(index, self._env.pools[0].steps + t + 1, is_reward=finite[t, index])
        for pool in self._env.pools:
            pool.steps += len(reward)


def _info_keys(spec: Any) -> tuple[str, ...]:
    shapes = {key.removeprefix("info:"): tuple(x.shape) for key, x in spec.state_array_spec.items()
              if key.startswith("info:") and not key.endswith("env_id")}  # fmt: skip
    return tuple(key for key, shape in shapes.items() if shape in ((), (-1,)))


def _suite_of(name: str) -> str:
    return str(importlib.import_module("envpool").registration.registry.specs[name][0])


def _part(obs: Any, leaf: Leaf) -> Any:
    """One leaf of an observation as it is stored, of numpy or traced arrays."""
    obs = _raw_part(obs, leaf)
    if leaf["kind"] == "box":
        return obs.astype(leaf["stored"], copy=False)
    return (obs - leaf["start"]).astype(np.int32)


def _raw_part(obs: Any, leaf: Leaf) -> Any:
    for key in leaf["path"]:
        obs = obs[key]
    return obs


def _channels_last(space: Space) -> Space:
    if isinstance(space, Dict):
        return Dict(tuple((key, _channels_last(part)) for key, part in space.spaces))
    if not _is_channels_first(space):
        return space
    assert isinstance(space, Box)
    low, high = (np.moveaxis(np.reshape(x, space.shape), 0, -1) for x in (space.low, space.high))
    return Box.of(low, high, low.shape, space.dtype)


def _is_channels_first(space: Space) -> bool:
    """True if it is an image [channels, height, width]: most suites of envpool have such images."""
    return (
        isinstance(space, Box)
        and len(space.shape) == 3
        and space.dtype is np.uint8
        and space.shape[0] < min(space.shape[1:])
    )


def _checked_spec(name: str, label: str, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """envpool's spec of one environment, and the options to make it with."""
    try:
        import envpool
    except ModuleNotFoundError as error:
        raise ImportError(f"{label} needs the package envpool: pip install envpool") from error
    except Exception as error:  # whatever its code makes of the versions that it meets
        raise ImportError(f"{label}: {installation.misfit('envpool', error)}") from error
    if name not in envpool.list_all_envs():
        raise unknown("environment", f"envpool:{name}", [f"envpool:{x}" for x in envpool.list_all_envs()])
    if _suite_of(name) == "envpool.procgen" and load_qt(label):
        # `import envpool` tried this module without Qt, and it keeps its failure.
        importlib.reload(importlib.import_module("envpool.procgen"))
    spec = envpool.make_spec(name)
    defaults = {key: value for key, value in spec.config._asdict().items() if key not in _RESERVED}
    options = {}
    for key, value in kwargs.items():
        if key not in defaults:
            raise unknown(f"argument of envpool:{name}", key, defaults)
        options[key] = like(f"envpool:{name}: {key}", value, defaults[key])
        if key in _POSITIVE:
            check_positive(f"envpool:{name}: {key}", value, _LARGEST.get(key, LARGEST_INT32))
    if defaults.get("channel_first"):
        options.setdefault("channel_first", False)  # Procgen draws with the channels last
    if options:
        try:
            spec = envpool.make_spec(name, **options)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{label} is refused by envpool: {' '.join(str(error).split())}") from error
    players = int(getattr(spec.config, "max_num_players", 1))
    if players > 1:  # With one action for each environment some of envpool's end the process.
        raise ValueError(f"{label} is for several players ({players}): only environments of one train here")
    return spec, options
