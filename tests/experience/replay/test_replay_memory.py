"""The replay memory beside a plain loop over everything that was ever collected."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.replay import PriorityPlan, ReplayPlan, Transitions
from jaxrl.experience.memory import build
from jaxrl.experience.replay import Replay, Ring
from jaxrl.types import Axis, Trajectory

ENVS, LENGTH, N_STEP = 4, 5, 3
PLAN = ReplayPlan(
    rows=3 * LENGTH,
    batch_size=16,
    groups=2,
    n_step=N_STEP,
    learning_starts=0,
    axis=Axis(),
    priorities=PriorityPlan(0.6, 0.4, 100),
)
UNIFORM = dataclasses.replace(PLAN, priorities=None)
RACE = dataclasses.replace(PLAN, axis=Axis(platform="gpu"))  # draws as it does there


def rollouts(count: int) -> list[Trajectory]:
    """Rows as collectors give them: episodes of one step and more, truncations, and forced resets."""
    random = np.random.default_rng(0)
    found, reset, final = [], np.ones(ENVS, bool), np.zeros(ENVS, bool)
    for i in range(count):
        rows: dict[str, list[Any]] = {}
        for t in range(LENGTH):
            ends = (random.random(ENVS) < 0.3) & ~final
            terminated = ends & (random.random(ENVS) < 0.5)
            name = 100 * (i * LENGTH + t) + np.arange(ENVS)
            row = {
                "obs": (name % 251).astype(np.uint8)[:, None],
                "action": name.astype(np.int32),
                "reset": reset,
                "terminated": terminated,
                "truncated": ends,
                "valid": ~final,
                "reward": random.normal(size=ENVS).astype(np.float32),
            }
            for key, value in row.items():
                rows.setdefault(key, []).append(value)
            forced = random.random(ENVS) < 0.1
            reset, final = final | forced, ends & ~forced
        stacked = {key: jnp.asarray(np.stack(value)) for key, value in rows.items()}
        zeros = jnp.zeros((LENGTH, ENVS))
        facts = Trajectory(**stacked, action_mask=None, carry=None, next_obs=None, extras={"value": zeros})
        found.append(facts)
    return found


@functools.cache
def compiled(memory: Replay) -> tuple[Any, Any]:
    """(add, draw)."""
    return jax.jit(memory.add), jax.jit(memory.draw)


def filled(memory: Replay, found: list[Trajectory]) -> Ring:
    state, add = memory.init(found[0]), compiled(memory)[0]
    for each in found:
        state = add(state, each)
    return state


def history(found: list[Trajectory]) -> dict[str, np.ndarray]:
    names = ("obs", "action", "reset", "terminated", "valid", "reward")
    return {name: np.concatenate([np.asarray(getattr(t, name)) for t in found]) for name in names}


def drawable(rows: dict[str, np.ndarray]) -> dict[int, tuple[list[float], int, bool]]:
    """By the action that names it: rewards, steps and termination of each row in the ring."""
    total, found = len(rows["reward"]), {}
    for b in range(ENVS):
        for t in range(max(0, total - PLAN.rows), total - N_STEP):
            rewards, ended = [], False
            for k in range(t, t + N_STEP):
                lost = rows["reset"][k + 1, b] and not rows["terminated"][k, b]
                if not rows["valid"][k, b] or lost or ended:
                    break
                rewards.append(float(rows["reward"][k, b]))
                ended = bool(rows["terminated"][k, b])
            if rewards:
                found[int(rows["action"][t, b])] = (rewards, (t + len(rewards)) * 100 + b, ended)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("plan", "added"), [*itertools.product([PLAN, UNIFORM], [1, 3, 4, 8]), (RACE, 8)])
def test_every_transition_is_one_of_a_loop(plan: ReplayPlan, added: int) -> None:
    found = rollouts(added)
    memory = build(plan)
    assert isinstance(memory, Replay)
    state, expected = filled(memory, found), drawable(history(found))
    draw, seen = compiled(memory)[1], set()
    for i in range(40):
        drawn: Transitions = jax.device_get(draw(state, found[-1], jax.random.key(i)))
        assert drawn.obs.dtype == np.uint8
        usable = np.flatnonzero(drawn.usable)
        places = {(int(drawn.row[n]), int(drawn.env[n])) for n in usable}
        assert len(places) == len(usable)
        for n in usable:
            name = int(drawn.action[n])
            rewards, after, ended = expected[name]
            steps = int(drawn.counts[:, n].sum())
            np.testing.assert_array_equal(drawn.reward[:steps, n], np.float32(rewards))
            assert bool(drawn.terminated[n]) == ended
            assert int(drawn.obs[n, 0]) == name % 251
            if not ended:
                assert int(drawn.next_obs[n, 0]) == after % 251
            seen.add(name)
    assert seen == set(expected)


def test_episodes_end_in_every_way_in_these_tests() -> None:
    rows = history(rollouts(8))
    reset, ended = rows["reset"], ~rows["valid"]
    assert (rows["terminated"][:-1] & ended[1:] & reset[:-1]).any()  # one step
    assert (~rows["terminated"][:-1] & ended[1:]).any()  # truncated
    assert (reset[1:] & rows["valid"][:-1] & ~rows["terminated"][:-1]).any()  # started again
    # Truncated on the ring's last row, so that its final observation is on the first.
    seam = 2 * PLAN.rows
    assert len(reset) - PLAN.rows < seam - N_STEP
    assert (~rows["terminated"][seam - 1] & ended[seam]).any()


@pytest.mark.slow
def test_empty_memory_draws_nothing() -> None:
    for plan in (PLAN, UNIFORM):
        memory, (latest,) = Replay(plan), rollouts(1)
        drawn = compiled(memory)[1](memory.init(latest), latest, jax.random.key(0))
        assert not drawn.usable.any()
        assert np.isfinite(drawn.weight).all()


@pytest.mark.slow
def test_nothing_is_learnt_before_there_is_enough() -> None:
    memory = Replay(dataclasses.replace(PLAN, learning_starts=2 * LENGTH))
    found = rollouts(2)
    few, enough = filled(memory, found[:1]), filled(memory, found)
    draw = compiled(memory)[1]
    drawn = draw(few, found[0], jax.random.key(0))
    assert not drawn.ready
    assert not drawn.usable.any()
    after = memory.feedback(few, drawn.feedback(jnp.ones(PLAN.batch_size)))
    assert int(after.draws) == 0
    np.testing.assert_array_equal(after.tree.leaf, few.tree.leaf)
    assert draw(enough, found[1], jax.random.key(0)).ready


@pytest.mark.slow
@pytest.mark.parametrize("plan", [PLAN, UNIFORM], ids=["by_priority", "uniform"])
def test_nothing_is_learnt_before_a_return_is_whole(plan: ReplayPlan) -> None:
    """No row has five successors among the first five, whatever `learning_starts`."""
    memory, found = Replay(dataclasses.replace(plan, n_step=LENGTH)), rollouts(2)
    draw = compiled(memory)[1]
    assert not draw(filled(memory, found[:1]), found[0], jax.random.key(0)).ready
    assert draw(filled(memory, found), found[1], jax.random.key(0)).ready


@pytest.mark.slow
def test_priorities_and_weights_beside_a_loop() -> None:
    memory, found = Replay(PLAN), rollouts(9)
    state, leaf = memory.init(found[0]), {}  # by action
    (add, draw), feedback = compiled(memory), jax.jit(memory.feedback)
    random = np.random.default_rng(1)
    for i, latest in enumerate(found):
        largest = max(leaf.values(), default=1.0)
        state = add(state, latest)
        rows = history(found[: i + 1])
        valid = np.asarray(latest.valid)
        leaf |= dict.fromkeys(np.asarray(latest.action)[valid].tolist(), largest)
        held = set(rows["action"][-PLAN.rows :].ravel().tolist())
        cut = np.zeros_like(rows["reset"])
        cut[:-1] = rows["reset"][1:] & ~rows["terminated"][:-1]
        leaf = {k: v for k, v in leaf.items() if k in held and k not in rows["action"][cut]}
        drawn = draw(state, latest, jax.random.key(i))
        if i < 2:
            continue
        allowed = {k: leaf[k] for k in drawable(rows)}
        group = {k: sum(v for j, v in allowed.items() if j % 100 // 2 == k % 100 // 2) for k in allowed}
        usable, names = np.asarray(drawn.usable), np.asarray(drawn.action).tolist()
        beta = 0.4 + 0.6 * (i - 2) / 100
        raw = [
            (len(allowed) * allowed[k] / group[k] / 2) ** -beta if use else 0.0
            for k, use in zip(names, usable, strict=True)
        ]
        np.testing.assert_allclose(drawn.weight, np.array(raw) / max(raw), rtol=1e-4)
        error = random.normal(size=len(names)).astype(np.float32) * 10.0
        leaf |= {k: (abs(e) + 1e-5) ** 0.6 for k, e, use in zip(names, error, usable, strict=True) if use}
        state = dataclasses.replace(state, draws=jnp.int32(i - 2))
        state = feedback(state, drawn.feedback(jnp.asarray(error)))
    kept = {int(a): float(x) for a, x in zip(*flat(state), strict=True) if x > 0}
    assert kept.keys() == leaf.keys()
    np.testing.assert_allclose([kept[k] for k in leaf], list(leaf.values()), rtol=1e-4)


def flat(state: Ring) -> tuple[np.ndarray, np.ndarray]:
    """(action, leaf) of all rows."""
    assert state.tree is not None
    return np.asarray(state.rows["action"]).ravel(), np.asarray(state.tree.leaf[:, : state.size]).T.ravel()


@pytest.mark.slow
@pytest.mark.parametrize("plan", [PLAN, UNIFORM])
def test_devices_draw_the_rows_that_one_draws(plan: ReplayPlan) -> None:
    found, half = rollouts(2), ENVS // 2

    def drawn_with(axis: Axis, found: list[Trajectory]) -> Transitions:
        """The second draw, by the priorities of errors of the first."""
        memory = Replay(dataclasses.replace(plan, axis=axis))
        state = memory.init(found[0])
        for each in found:
            state = memory.add(state, each)
        first = memory.draw(state, found[-1], jax.random.key(0))
        state = memory.feedback(state, first.feedback(10.0 * first.reward[0]))
        return memory.draw(state, found[-1], jax.random.key(1))

    one = jax.jit(functools.partial(drawn_with, Axis()))(found)

    def part(i: int) -> list[Trajectory]:
        return [jax.tree.map(lambda x: x[:, i * half : (i + 1) * half], t) for t in found]

    both = jax.tree.map(lambda *x: jnp.stack(x), part(0), part(1))
    # Under vmap, sums over devices are those of a mesh.
    of_device = functools.partial(drawn_with, Axis(name="devices", size=2))
    drawn = jax.jit(jax.vmap(of_device, axis_name="devices"))(both)
    parts = [jax.tree.map(lambda x, i=i: x[i], drawn) for i in range(2)]
    for name in ("action", "reward", "next_obs", "usable", "weight"):
        axis = 1 if name == "reward" else 0
        joined = np.concatenate([np.asarray(getattr(p, name)) for p in parts], axis=axis)
        rtol = 1e-6 if name == "weight" else 0  # whose sums are of another order
        np.testing.assert_allclose(joined, getattr(one, name), rtol=rtol, err_msg=name)
    assert (len(np.unique(one.weight)) > 4) == (plan.priorities is not None)


@pytest.mark.slow
@pytest.mark.parametrize("plan", [PLAN, UNIFORM])
def test_states_can_be_donated(plan: ReplayPlan) -> None:
    memory, (latest,) = Replay(plan), rollouts(1)
    state = jax.jit(memory.add, donate_argnums=0)(memory.init(latest), latest)
    assert (int(state.count), int(state.cursor), int(state.draws)) == (LENGTH, LENGTH, 0)
