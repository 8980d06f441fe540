"""Shaped rewards in a chain whose best policy is known."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import envs

MODULE = "tests.envs.wrapped_environments"


def best_actions(*wrappers: str) -> tuple[np.ndarray, np.ndarray]:
    """(Q-values of the chain [4, 2], with a discount of 0.9; the best actions) by value iteration."""
    env = envs.make(f"{MODULE}:Chain", wrappers)
    key = jax.random.key(0)
    values, q = np.zeros(4), np.zeros((4, 2))
    steps = {}
    for place in range(4):
        state, _ = env.reset(key)
        for _ in range(place):
            state, step = env.step(key, state, jnp.int32(1))
        steps |= {(place, action): env.step(key, state, jnp.int32(action))[1] for action in range(2)}
    for _ in range(6):
        for (place, action), step in steps.items():
            after = 0 if step.terminated else values[int(step.obs[0])]
            q[place, action] = step.reward + 0.9 * after
        values = q.max(axis=1)
    return q, q.argmax(axis=1)


def test_shaping_by_a_potential_keeps_the_best_policy():
    q, best = best_actions()
    assert best.tolist() == [1, 1, 1, 1]
    np.testing.assert_allclose(q[:, 1], 3 * 0.9 ** np.array([3, 2, 1, 0]), rtol=1e-6)
    potential = np.array([5.0, 3.0, 2.0, 1.0])
    for scale in (1.0, -3.0):
        name = f"potential_shaping(function='{MODULE}:misleading', gamma=0.9, scale={scale})"
        found, actions = best_actions(name)
        assert actions.tolist() == best.tolist()
        # Ng, Harada and Russell 1999, corollary 2.
        np.testing.assert_allclose(found, q - scale * potential[:, None], rtol=1e-5, atol=1e-5)
    told, actions = best_actions(f"reward_shaping(function='{MODULE}:misled')")
    np.testing.assert_allclose(told, q - potential[:, None], rtol=1e-5, atol=1e-5)
    # Without being told of terminations it cannot be right.
    assert best_actions(f"reward_shaping(function='{MODULE}:untold')")[1].tolist() == [0, 0, 0, 0]
