"""What a memory draws, by hand."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxrl.algorithms.replay import SequenceBatch
from jaxrl.types import PyTree


def drawn(count: int, ready: bool = True) -> dict[str, np.ndarray]:
    """The fields of a draw of `count` rows or sequences beside their contents."""
    return {
        "row": np.arange(count, dtype=np.int32),
        "env": np.zeros(count, np.int32),
        "ready": np.array(ready),
        "latest_reward": np.float32(0.0),
        "latest_steps": np.float32(1.0),
        "latest_noted": np.float32(0.0),
    }


def sequences(agent: Any, burn_in: int, learnt: int, n_step: int, count: int, **others: Any) -> SequenceBatch:
    """Episodes end within the burn-in, within n steps of the end, after one step, and not at all."""
    random, window = np.random.default_rng(0), burn_in + learnt + n_step
    normal = lambda *shape: random.normal(size=shape).astype(np.float32)  # noqa: E731
    steps = random.integers(0, n_step + 1, (learnt, count))
    counts = np.arange(n_step)[None, :, None] < steps[:, None]
    batch = SequenceBatch(
        obs=normal(window, count, *agent.spec.observation_space.shape),
        reset=random.random((window, count)) < 0.3,
        carry=jax.tree.map(lambda x: normal(*x.shape), agent.initial_carry(count)),
        counts=counts,
        terminated=(random.random((learnt, count)) < 0.3) & counts[:, 0],
        usable=counts[:, 0] & (np.arange(count) < count - 1),
        weight=np.linspace(0.1, 1.0, count).astype(np.float32),
        **drawn(count),
        **others,
    )
    return on_device(batch)


def on_device(batch: PyTree) -> Any:
    """A batch of numpy's as arrays of JAX."""
    return jax.tree.map(jax.numpy.asarray, batch)
