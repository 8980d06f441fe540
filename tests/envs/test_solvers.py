"""Solvers of environments: the best return is theirs, also beneath wrappers, and a wrong one is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.base import Discrete, JaxEnv
from jaxrl.envs.checks import check_types
from jaxrl.envs.vector import VectorEnv


def returns_of_first_episodes(name: str, steps: int, wrappers: tuple[str, ...] = ()) -> np.ndarray:
    """float32[8], of a solver that plays."""
    env = VectorEnv(envs.make(name, wrappers))
    keys = jax.random.split(jax.random.key(3), 8)

    @jax.jit
    def play() -> Any:
        state, _ = env.reset(keys)

        def step(loop: Any, t: jax.Array) -> Any:
            state, total, over = loop
            at = jax.vmap(jax.random.fold_in, (0, None))(keys, t)
            state, found = env.step(at, state, env.solve(state))
            total = total + jnp.where(over, 0.0, found.reported_reward)
            return (state, total, over | found.done), None

        start = (state, jnp.zeros(8), jnp.zeros(8, bool))
        return jax.lax.scan(step, start, jnp.arange(steps))[0][1:]

    total, over = jax.device_get(play())
    assert over.all()
    return np.asarray(total)


@pytest.mark.parametrize(
    ("name", "steps", "best"),
    [
        ("jaxrl:memory/TMaze(length=3)", 5, 4.0),
        ("jaxrl:memory/RepeatFirst", 51, 1.0),
        ("jaxrl:memory/RepeatPrevious(k=3)", 51, 1.0),
    ],
)
def test_a_solver_has_the_best_return(name: str, steps: int, best: float) -> None:
    np.testing.assert_allclose(returns_of_first_episodes(name, steps), best, rtol=1e-4)


@pytest.mark.slow
def test_each_flip_of_the_solver_is_needed() -> None:
    # As many steps as bits differ: all are worth -1 but the last.
    env = envs.make("jaxrl:BitFlip(bits=6)")
    found = returns_of_first_episodes("jaxrl:BitFlip(bits=6)", 7)
    starts = jax.vmap(env.reset)(jax.random.split(jax.random.key(3), 8))[0]
    apart = np.asarray((starts.bits != starts.goal).sum(axis=-1))
    assert (apart > 0).all()
    np.testing.assert_allclose(found, 2.0 - apart)


def test_wrappers_pass_it_on_unless_they_change_what_an_action_does() -> None:
    name = "jaxrl:memory/TMaze(length=3)"
    through = ("time_limit(steps=9)", "previous_action", "frame_stack(frames=2)")
    np.testing.assert_allclose(returns_of_first_episodes(name, 5, through), 4.0)
    assert not envs.make(name, ("sticky_actions",)).spec.has_solver
    assert not envs.make(name, ("action_repeat(times=2)",)).spec.has_solver


def test_a_wrong_solver_is_refused_in_one_line() -> None:
    class Unsolved(JaxEnv):
        spec = dataclasses.replace(envs.make("jaxrl:ProbeMemory").spec, has_solver=True)

        def reset(self, key: jax.Array) -> Any:
            return envs.make("jaxrl:ProbeMemory").reset(key)

        def step(self, key: jax.Array, state: Any, action: jax.Array) -> Any:
            return envs.make("jaxrl:ProbeMemory").step(key, state, action)

    class Wrong(Unsolved):
        def solve(self, state: Any) -> jax.Array:
            return jnp.zeros(2)

    assert isinstance(Unsolved.spec.action_space, Discrete)
    with pytest.raises(ValueError, match="spec.has_solver is set, and there is no method"):
        check_types("mine", Unsolved())
    with pytest.raises(ValueError, match=r"solve\(\) returned float32\[2\]; return an action"):
        check_types("mine", Wrong())
