"""Hindsight beside a plain loop over everything that was ever collected: goals, rewards, terminations."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.replay import HindsightPlan, ReplayPlan, Transitions
from jaxrl.config.replay import STRATEGIES
from jaxrl.envs.goals import NearGoals
from jaxrl.experience.replay import HindsightReplayBuffer, Replay
from jaxrl.experience.replay.hindsight import first_age, new_goals
from jaxrl.types import Axis, Trajectory
from tests.experience.replay.test_replay_memory import ENVS, LENGTH, N_STEP
from tests.experience.replay.test_replay_memory import PLAN as PLAIN
from tests.experience.replay.test_replay_memory import rollouts as plain_rollouts

K = 4
GOALS = NearGoals(radius=1.5)
PLAN = dataclasses.replace(PLAIN, rows=4 * LENGTH, hindsight=HindsightPlan("future", K, GOALS))


def plan_of(strategy: str, prioritised: bool) -> ReplayPlan:
    priorities = PLAN.priorities if prioritised else None
    return dataclasses.replace(PLAN, priorities=priorities, hindsight=HindsightPlan(strategy, K, GOALS))


@functools.cache
def rollouts(count: int) -> list[Trajectory]:
    """Rows with places on a line: each is that of the row before, or next to it; goals are far away."""
    random, place, found = np.random.default_rng(1), np.zeros(ENVS), []
    for each in plain_rollouts(count):
        places = []
        for _ in range(LENGTH):
            place = place + random.integers(-1, 3, ENVS)
            places.append(place)
        achieved = np.stack(places)[..., None].astype(np.float32)
        obs = {
            "achieved_goal": jnp.asarray(achieved),
            "desired_goal": jnp.full_like(achieved, -1000.0),
            "observation": each.action[..., None].astype(jnp.float32),
        }
        found.append(dataclasses.replace(each, obs=obs))
    return found


def history(found: list[Trajectory]) -> dict[str, np.ndarray]:
    rows = {
        name: [getattr(t, name) for t in found]
        for name in ("action", "reset", "terminated", "valid", "reward")
    }
    rows["place"] = [t.obs["achieved_goal"][..., 0] for t in found]
    return {name: np.concatenate([np.asarray(x) for x in parts]) for name, parts in rows.items()}


def goals_of(rows: dict[str, np.ndarray], strategy: str, t: int, b: int) -> set[float]:
    """The goals that the step in row t of environment b may get, by a plain walk along its episode."""
    reset, valid, place, total = (
        rows["reset"][:, b],
        rows["valid"][:, b],
        rows["place"][:, b],
        len(rows["reset"]),
    )
    oldest = max(0, total - PLAN.rows)

    def known(s: int) -> bool:
        return bool(s + 1 < total and valid[s] and not reset[s + 1])

    if not known(t):
        return set()
    if strategy == "random":
        group = b // 2 * 2
        return {
            float(rows["place"][s + 1, e])
            for e in (group, group + 1)
            for s in range(oldest, total - 1)
            if rows["valid"][s, e] and not rows["reset"][s + 1, e]
        }
    first = t
    while first > oldest and not reset[first]:
        first -= 1
    steps, s = [], first
    while known(s):
        steps.append(s)
        s += 1
    if strategy == "future":
        # baselines' her_sampler: achieved_goal[t + 1 + offset], with an offset from 0 on
        return {float(place[s + 1]) for s in steps if s >= t}
    if not reset[first] or valid[s]:  # begun before the oldest row, going on, or cut by force
        return set()
    return {float(place[s + 1]) for s in (steps if strategy == "episode" else steps[-1:])}


def expected(rows: dict[str, np.ndarray], t: int, b: int, goal: float | None) -> tuple[list[float], bool]:
    """(rewards, whether it terminated) of the return from row t."""
    rewards: list[float] = []
    for s in range(t, t + N_STEP):
        ended, reward, lost = rows["terminated"][s, b], rows["reward"][s, b], rows["reset"][s + 1, b]
        if goal is not None:
            ended = abs(rows["place"][s + 1, b] - goal) < 1.5 and not lost
            reward = 1.0 if ended else -1.0
        if not rows["valid"][s, b] or (lost and not ended):
            return rewards, False
        rewards.append(float(reward))
        if ended:
            return rewards, True
    return rewards, False


@functools.cache
def compiled(memory: Replay) -> tuple[Any, Any]:
    """(add, several draws at once)."""
    draws = jax.vmap(memory.draw, in_axes=(None, None, 0))
    return jax.jit(memory.add), jax.jit(draws)


def check(rows: dict[str, np.ndarray], strategy: str, drawn: Transitions, n: int) -> float | None:
    """Compares one row drawn with the loop; returns its new goal, None if it kept its own."""
    where = np.argwhere(rows["action"] == drawn.action[n])
    t, b = (int(x) for x in where[-1])
    asked = float(drawn.obs["desired_goal"][n, 0])
    assert float(drawn.next_obs["desired_goal"][n, 0]) == asked
    goal = None if asked == -1000.0 else asked
    if goal is not None:
        assert goal in goals_of(rows, strategy, t, b)
    rewards, ended = expected(rows, t, b, goal)
    steps = int(drawn.counts[:, n].sum())
    np.testing.assert_array_equal(drawn.reward[:steps, n], np.float32(rewards))
    assert bool(drawn.terminated[n]) == ended
    assert float(drawn.obs["achieved_goal"][n, 0]) == rows["place"][t, b]
    if not ended:
        assert float(drawn.next_obs["achieved_goal"][n, 0]) == rows["place"][t + steps, b]
    return goal


# Each strategy with draws of one kind, and each kind with two: goals do not depend on how steps are drawn.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "prioritised"), [("random", False), ("episode", False), ("future", True), ("final", True)]
)
def test_every_goal_reward_and_end_is_one_of_a_loop(strategy: str, prioritised: bool) -> None:
    memory = Replay(plan_of(strategy, prioritised))
    add, draws = compiled(memory)
    keys = jax.random.split(jax.random.key(0), 40)
    found = rollouts(9)
    state = memory.init(found[0])
    for added, latest in enumerate(found, start=1):
        state = add(state, latest)
        if added not in (1, 3, 4, 9):  # partly filled, full, and over the seam
            continue
        rows = history(found[:added])
        drawn: Transitions = jax.device_get(draws(state, latest, keys))
        seen: dict[int, set[float | None]] = {}
        for i, n in np.argwhere(drawn.usable):
            row = jax.tree.map(lambda x, i=i: x[i], drawn)
            seen.setdefault(int(row.action[n]), set()).add(check(rows, strategy, row, int(n)))
        exchanged = [goal for goals in seen.values() for goal in goals if goal is not None]
        # Rows for which there are goals get them; of few goals, each.
        for name, goals in seen.items():
            t, b = (int(x) for x in np.argwhere(rows["action"] == name)[-1])
            allowed = goals_of(rows, strategy, t, b)
            if strategy == "final" and allowed:
                assert goals >= allowed
        assert exchanged or added == 1


def test_these_episodes_end_in_every_way() -> None:
    rows = history(rollouts(9))
    ends = [goals_of(rows, "final", t, b) for t in range(25, 45) for b in range(ENVS)]
    assert any(ends)
    assert not all(ends)
    cut = rows["reset"][1:] & rows["valid"][:-1]
    assert (cut & ~rows["terminated"][:-1]).any()
    assert (~rows["valid"][1:] & rows["reset"][:-1]).any()  # of one step


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_goals_are_drawn_evenly(strategy: str) -> None:
    # One episode of 6 steps; the third row is drawn again and again.
    goals = [float(x) for x in range(10, 16)]
    buffer = HindsightReplayBuffer(8, K, strategy, NearGoals())
    state = buffer.add(buffer.init(step_like()), steps(np.arange(10, 16), [5]))
    count = 4_000
    sample = jax.jit(jax.vmap(lambda key: buffer.sample(state, key, 6)[1:3]))
    items, index = jax.device_get(sample(jax.random.split(jax.random.key(2), count)))
    asked = items["obs"]["desired_goal"][..., 0][index == 2]
    assert len(asked) == count
    allowed = {"future": goals[2:], "final": goals[5:]}.get(strategy, goals)
    share = count * K / (K + 1) / len(allowed)
    values, counts = np.unique(asked[asked != -1000.0], return_counts=True)
    assert values.tolist() == allowed
    assert np.abs(counts - share).max() < 5 * share**0.5


def step_like() -> dict[str, Any]:
    obs = {name: jnp.zeros(1) for name in ("observation", "achieved_goal", "desired_goal")}
    scalars = {"reward": jnp.float32(0.0), "terminated": jnp.array(False), "done": jnp.array(False)}
    return {"obs": obs, "next_obs": obs, **scalars}


def steps(after: Any, ends: list[int]) -> dict[str, Any]:
    """Steps that achieve `after`, and end episodes at some of them."""
    after = np.asarray(after, np.float32)[:, None]
    done = np.isin(np.arange(len(after)), ends)

    def obs(place: np.ndarray) -> dict[str, np.ndarray]:
        return {"observation": place, "achieved_goal": place, "desired_goal": np.full_like(place, -1000.0)}

    facts = {"reward": np.full(len(after), 7.0, np.float32), "terminated": done & False, "done": done}
    return {"obs": obs(after - 1), "next_obs": obs(after), **facts}


# The goals of each strategy are above, for this buffer and for a memory of rollouts.
@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    [x if x == "future" else pytest.param(x, marks=pytest.mark.long) for x in STRATEGIES],
)
def test_buffer_of_ones_own_beside_a_loop(strategy: str) -> None:
    buffer, random = HindsightReplayBuffer(12, K, strategy, NearGoals()), np.random.default_rng(0)
    state, log = buffer.init(step_like()), []  # (place, episode, ended)
    add, sample = jax.jit(buffer.add), jax.jit(buffer.sample, static_argnums=2)
    update, episode, some = jax.jit(buffer.update_priorities), 0, False
    for i in range(20):
        after = random.integers(0, 4, 5) + 100 * i
        ends = np.flatnonzero(random.random(5) < 0.4).tolist()
        for j, place in enumerate(after):
            log.append((float(place), episode, j in ends))
            episode += j in ends
        state = add(state, steps(after, ends))
        kept = range(max(0, len(log) - 12), len(log))
        assert int(state.count) == len(kept)
        state, *drawn = sample(state, jax.random.key(i), 4)
        items, index, weight = jax.device_get(drawn)
        state = update(state, index, jnp.asarray(random.normal(size=4), jnp.float32))
        assert float(weight.max()) == pytest.approx(1.0)
        for n, at in enumerate(index):
            t = next(s for s in kept if s % 12 == at)
            mine = [s for s in kept if log[s][1] == log[t][1]]
            whole = log[mine[-1]][2] and (mine[0] == 0 or mine[0] > kept[0] or log[mine[0] - 1][2])
            allowed = {
                "future": [s for s in mine if s >= t],
                "final": mine[-1:] if whole else [],
                "episode": mine if whole else [],
                "random": list(kept),
            }[strategy]
            goal, place = float(items["obs"]["desired_goal"][n, 0]), log[t][0]
            assert float(items["next_obs"]["desired_goal"][n, 0]) == goal
            assert float(items["next_obs"]["achieved_goal"][n, 0]) == place
            if goal == -1000.0:
                assert (float(items["reward"][n]), bool(items["terminated"][n])) == (7.0, False)
                continue
            some = True
            assert goal in [log[s][0] for s in allowed]
            assert float(items["reward"][n]) == (1.0 if goal == place else -1.0)
            assert bool(items["terminated"][n]) == (goal == place)
    assert some


@pytest.mark.slow
def test_first_age_beside_a_loop() -> None:
    random = np.random.default_rng(0)
    for size in (1, 2, 7, 16):
        numbers = np.sort(random.integers(0, 5, size)).astype(np.int32)
        for count in range(size + 1):
            wanted = jnp.arange(7, dtype=jnp.int32)
            found = first_age(jnp.asarray(numbers).__getitem__, wanted, jnp.int32(count), size)
            assert found.tolist() == np.searchsorted(numbers[:count], wanted).tolist()


# Goals of the same episode are on the same device anyway.
@pytest.mark.slow
def test_devices_exchange_the_goals_that_one_exchanges() -> None:
    plan, found, half = plan_of("random", True), rollouts(3), ENVS // 2

    def drawn(plan: ReplayPlan, found: list[Trajectory]) -> Transitions:
        memory = Replay(plan)
        state = memory.init(found[0])
        for each in found:
            state = memory.add(state, each)
        return memory.draw(state, found[-1], jax.random.key(5))

    @jax.jit
    def of_device(i: jax.Array, found: list[Trajectory]) -> Transitions:
        class Device(Axis):
            def index(self) -> jax.Array:
                return i

        return drawn(dataclasses.replace(plan, axis=Device(size=2)), found)

    one = jax.jit(functools.partial(drawn, plan))(found)
    parts = [
        of_device(jnp.int32(i), jax.tree.map(lambda x, i=i: x[:, i * half : (i + 1) * half], found))
        for i in range(2)
    ]
    assert (one.obs["desired_goal"] != -1000.0).any()
    for name in ("obs", "next_obs", "reward", "counts", "terminated", "usable"):
        axis = 1 if name in ("reward", "counts") else 0
        joined = jax.tree.map(
            lambda *x, axis=axis: np.concatenate(x, axis=axis), *(getattr(p, name) for p in parts)
        )
        jax.tree.map(np.testing.assert_array_equal, joined, getattr(one, name))


@pytest.mark.slow
def test_steps_before_a_restart_by_force_keep_their_goals() -> None:
    """What they achieved is not known: the next row is of another episode."""
    plan = plan_of("random", False)
    memory, found = Replay(plan), rollouts(4)
    state = memory.init(found[0])
    for each in found:
        state = memory.add(state, each)
    row, env = (jnp.asarray(x, jnp.int32) for x in np.divmod(np.arange(19 * ENVS), ENVS))
    keys = jax.random.split(jax.random.key(0), plan.groups)
    new = jax.device_get(jax.jit(functools.partial(new_goals, plan))(state, keys, env, row))
    ends = history(found)["reset"][1:].reshape(-1)
    assert ends.any()
    assert new.exchanged[~ends].any()
    assert not new.exchanged[ends].any()
