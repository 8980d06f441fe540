"""Training states for tests of checkpoints, and checkpoints of them to damage."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxrl.algorithms.ppo.ppo import PPOHyperparams
from jaxrl.algorithms.rollout_state import RolloutState
from jaxrl.runs.checkpoint import Checkpointer
from jaxrl.types import Acting, CollectorState, EpisodeStats, TrainState
from tests.compiled_programs import with_policy


@functools.partial(jax.jit, static_argnums=0)
def _make_state(num_envs: int) -> TrainState:
    params = {"torso": {"kernel": jax.random.normal(jax.random.key(1), (3, 5)), "bias": jnp.zeros(5)}}
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.scale_by_adam(), optax.scale(-1.0))
    gradient = jax.tree.map(jnp.ones_like, params)
    _, opt_state = optimizer.update(gradient, optimizer.init(params))
    env_state = {
        "key": jax.random.split(jax.random.key(2), num_envs),
        "board": jnp.arange(num_envs * 2, dtype=jnp.uint8).reshape(num_envs, 2),
        "nothing": jnp.zeros((num_envs, 0)),
        "inner": (jnp.full(num_envs, jnp.nan), None, jnp.arange(num_envs, dtype=jnp.bfloat16)),
    }
    zeros = jnp.zeros(num_envs)
    learner = RolloutState(
        policy=Acting(params, None),
        hyperparams=PPOHyperparams(*(jnp.asarray(0.1 * i, jnp.float32) for i in range(8))),
        updates=jnp.asarray(190, jnp.int32),
        opt_state=opt_state,
        reward_stats={"count": jnp.asarray(3.0)},
        discounted_return=zeros - 0.25,
    )
    collector = CollectorState(
        env_state=env_state,
        obs=jnp.linspace(0, 1, num_envs * 3).reshape(num_envs, 3),
        reset=jnp.arange(num_envs) % 2 == 0,
        carry=(),
        episode=EpisodeStats(zeros + 1.5, zeros.astype(jnp.int32) + 7, zeros.astype(bool)),
    )
    return TrainState(learner, collector, key=jax.random.key(3), iteration=jnp.asarray(12, jnp.int32))


def make_state(num_envs: int = 4) -> TrainState:
    """A state with everything that is awkward to store: None, typed keys, empty and odd-typed arrays."""
    return _make_state(num_envs)


def abstract_of(state: Any) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state)


def assert_bitwise_equal(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        assert x.shape == y.shape
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def state_at(step: int) -> TrainState:
    """`make_state` with contents of this step, among them an array that does not compress."""
    rng = np.random.default_rng(step)
    state = make_state()
    params = {**state.learner.policy.params, "head": jnp.asarray(rng.normal(size=(64, 32)), jnp.float32)}
    collector = dataclasses.replace(state.collector, obs=state.collector.obs + step)
    state = dataclasses.replace(state, collector=collector, key=jax.random.key(step))
    return with_policy(state, params=params)


def meta_at(step: int) -> dict[str, Any]:
    """The values that a trainer saves beside `state_at(step)`."""
    progress = {"iteration": step // 5, "seconds": 1.5, "evaluation": None, "evaluated_at": -1}
    return {"config": {"seed": 3}, **progress, "interval": {".iterations": 0}}


def save_run(run: Path, *steps: int, **meta: Any) -> None:
    """A run's folder with checkpoints of `state_at` these steps, the best of them the first."""
    checkpointer = Checkpointer(str(run / "checkpoints"), keep=max(len(steps), 1))
    for step in steps:
        checkpointer.save(step, state_at(step), meta_at(step) | meta, score=-float(step))
    checkpointer.close()


def files_of(path: Path) -> dict[str, bytes]:
    """Contents by relative path of all files below `path`."""
    return {str(f.relative_to(path)): f.read_bytes() for f in sorted(path.rglob("*")) if f.is_file()}


def flip_largest(path: Path) -> None:
    """Changes one bit in the middle of the largest file of arrays, of one that does not compress."""
    file = max((f for f in (path / "state").rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@contextlib.contextmanager
def mounted_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A disk of so many MB, mounted in the folder; the test is skipped if it may not mount one."""
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """As on a full disk, no file can grow beyond `size` bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
