"""First states in two parts, against first states at once."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs import registry
from jaxrl.envs.vector import VectorEnv
from jaxrl.experience.rollout_loop import SplitStarts
from jaxrl.types import Array, PyTree

B = 3
KEYS = jax.random.split(jax.random.key(0), B)


@pytest.mark.slow
def test_large_states_are_made_from_few_random_numbers() -> None:
    starts = VectorEnv(registry.make("gymnax:Breakout-MinAtar", ())).starts
    split = SplitStarts.of(starts, KEYS, None)
    finish = lambda kept: split.finish(kept, KEYS, None)  # noqa: E731
    kept = jax.jit(lambda: split.ahead(KEYS, None))()
    assert 0 < sum(x.nbytes for x in kept) <= 256 * B
    chex.assert_trees_all_equal(jax.jit(finish)(kept), jax.jit(lambda: starts(KEYS))())
    # Nothing random is left for the steps.
    assert "random" in str(jax.make_jaxpr(starts)(KEYS))
    assert "random" not in str(jax.make_jaxpr(finish)(kept))


def test_small_states_are_computed_ahead_from_keys_and_tasks() -> None:
    def starts(keys: Array, task: dict[str, Array]) -> PyTree:
        noise = jax.vmap(lambda key: jax.random.normal(key, (32,)))(keys)
        return {"state": task["level"][:, None] * noise, "constant": jnp.arange(40)}, noise

    task = {"level": jnp.arange(3.0)}
    split = SplitStarts.of(starts, KEYS, task)
    kept = split.ahead(KEYS, task)
    assert [x.shape for x in kept] == [(B, 32)] * 2
    chex.assert_trees_all_equal(split.finish(kept, KEYS, task), starts(KEYS, task))
    # The values come from those that were kept.
    zeros = jax.tree.map(jnp.zeros_like, kept)
    assert not np.any(split.finish(zeros, KEYS, task)[0]["state"])


def test_nothing_is_kept_if_it_were_too_much() -> None:
    def starts(keys: Array, task: None) -> PyTree:
        return [jax.vmap(lambda key: jax.random.normal(key, (32,)))(keys) * i for i in range(3)]

    split = SplitStarts.of(starts, KEYS, None)
    assert split.ahead(KEYS, None) == []
    chex.assert_trees_all_equal(split.finish([], KEYS, None), starts(KEYS, None))
