"""Level replay: buffer and scores against plain loops, choices by their shares, refusals."""

from __future__ import annotations

import collections
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config import ConfigError, default_config, resolve
from jaxrl.envs import registry
from jaxrl.experience import curriculum
from jaxrl.experience.level_replay import levels as levels_of
from jaxrl.experience.level_replay import replay_sampler
from jaxrl.experience.level_replay.replay_sampler import LevelReplaySampler
from jaxrl.experience.statistics import EpisodeReports
from jaxrl.types import Axis, EpisodeRows
from tests.experience.level_replay.reference import PlainReplay
from tests.experience.task_environments import LEVELS

N, T, CAPACITY = 6, 12, 20
MAZE = "jaxrl:Maze"
POOL = "tests.experience.task_environments:PooledCorridor"


def sampler(env: str = MAZE, name: str = "plr", **fields: Any) -> LevelReplaySampler:
    config = default_config()
    config.env.update(name=env, num_envs=N)
    config.ppo.num_minibatches = 1
    config.curriculum.name = name
    config.levels.update(capacity=CAPACITY, fill=0.0)
    config.update_from_flattened_dict(fields)
    resolved, made = resolve(config, 1), registry.make(env)
    found = curriculum.build(resolved, made, EpisodeReports.of(made.spec, resolved.env.success))
    assert isinstance(found, LevelReplaySampler)
    return found


def level_of(number: np.ndarray) -> dict[str, np.ndarray]:
    """A maze for each number, which is in its first row of walls."""
    zeros = np.zeros_like(number)
    walls = np.zeros((*number.shape, 13), np.int32)
    walls[..., 0] = number
    return {"agent": zeros, "direction": zeros, "goal": zeros + 168, "walls": walls}


class Rows:
    """Random rollouts: episodes of random lengths in new levels and in those of the plain buffer."""

    def __init__(self, seed: int, pool: bool) -> None:
        self.rng, self.pool, self.count = np.random.default_rng(seed), pool, 0
        self.running = [None] * N

    def begin(self, plain: PlainReplay) -> dict[str, int]:
        filled = [i for i, x in enumerate(plain.places) if x is not None]
        if self.pool:
            slot = int(self.rng.integers(LEVELS))
            place = plain.places[slot]
            return {"slot": slot, "born": -1 if place is None else place.born, "level": slot}
        if filled and self.rng.random() < 0.5:
            slot = int(self.rng.choice(filled))
            return {"slot": slot, "born": plain.places[slot].born, "level": plain.places[slot].level}
        self.count += 1
        # Sometimes one that is there already.
        return {
            "slot": -1,
            "born": -7,
            "level": int(self.rng.integers(max(1, self.count - 3), self.count + 1)),
        }

    def rollout(self, plain: PlainReplay) -> dict[str, np.ndarray]:
        found: dict[str, Any] = collections.defaultdict(lambda: np.zeros((T, N)))
        for t in range(T):
            for n in range(N):
                if self.running[n] is None:
                    self.running[n] = self.begin(plain)
                for name, x in self.running[n].items():
                    found[name][t, n] = x
                done = self.rng.random() < 0.3
                found["done"][t, n] = done
                found["ended"][t, n] = done and self.rng.random() < 0.9
                found["signal"][t, n] = np.float32(self.rng.normal())
                found["return"][t, n] = np.float32(self.rng.normal())
                if done:
                    self.running[n] = None
        integers = {name: found[name].astype(np.int32) for name in ("slot", "born", "level")}
        return {**found, **integers, **{name: found[name] > 0 for name in ("done", "ended")}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "devices", "pool"),
    [
        ("positive_value_loss", 1, False),
        ("l1_value_loss", 2, False),
        ("max_mc", 3, False),
        ("max_mc", 2, True),
    ],
)
def test_scores_ages_and_places_are_those_of_plain_loops(kind, devices, pool, monkeypatch):
    monkeypatch.setattr(replay_sampler, "_MOST_NEW", 9)  # fewer than end in a rollout
    made = sampler(POOL if pool else MAZE, **{"levels.score": kind})
    plain = PlainReplay(LEVELS if pool else CAPACITY, N, kind, 0.3, 0.3, pool)
    dice, axis = Rows(devices, pool), Axis("data", devices)

    @jax.jit
    def update(state: Any, rows: EpisodeRows, signal: jax.Array) -> Any:
        split = lambda x: x.reshape(T, devices, N // devices, *x.shape[2:]).swapaxes(0, 1)  # noqa: E731
        run = lambda rows, signal: made.update(state, rows, {made.signals[0]: signal}, axis)  # noqa: E731
        after = jax.vmap(run, axis_name="data")(*jax.tree.map(split, (rows, signal)))
        same = jax.tree.map(lambda x: (x == x[:1]).all(), after)
        return jax.tree.map(lambda x: x[0], after), same

    state, replaced = made.init(jax.random.key(0)), 0
    for _ in range(12):
        rows = dice.rollout(plain)
        task = {"level": rows["level"]} if pool else level_of(rows["level"])
        given = EpisodeRows(
            ended=jnp.asarray(rows["ended"]),
            done=jnp.asarray(rows["done"]),
            task=jax.tree.map(
                jnp.asarray, {"kind": rows["slot"], "slot": rows["slot"], "born": rows["born"], "task": task}
            ),
            episode_return=jnp.asarray(rows["return"], jnp.float32),
            length=jnp.ones((T, N), jnp.int32),
            success=None,
        )
        state, same = update(state, given, jnp.asarray(rows["signal"], jnp.float32))
        assert all(jax.tree.leaves(same))
        before = {x.level for x in plain.places if x is not None}
        plain.rollout(rows, 9)
        replaced += len(before - {x.level for x in plain.places if x is not None})
        filled = [i for i, x in enumerate(plain.places) if x is not None]
        buffer = jax.device_get(state.buffer)
        np.testing.assert_array_equal(np.flatnonzero(buffer.born != -1), filled)
        for name in ("score", "best", "played", "born"):
            there = [getattr(plain.places[i], name) for i in filled]
            np.testing.assert_allclose(getattr(buffer, name)[filled], there, rtol=1e-5, atol=1e-6)
        levels = buffer.task["level"] if pool else buffer.task["walls"][:, 0]
        np.testing.assert_array_equal(levels[filled], [plain.places[i].level for i in filled])
        np.testing.assert_allclose(
            levels_of.chances(made.levels, state.buffer, state.iteration),
            plain.chances(),
            rtol=1e-3,
            atol=1e-5,
        )
    assert len(filled) == len(plain.places)
    assert pool or replaced > 3


def filled_state(made: LevelReplaySampler, filled: int, **fields: Any) -> Any:
    state = made.init(jax.random.key(0))
    count = made.source.capacity
    is_filled = np.arange(count) < filled
    task = {"level": np.arange(count)} if made.source.pool is not None else level_of(np.arange(count))
    buffer = state.buffer.replace(
        task=jax.tree.map(jnp.asarray, task),
        score=jnp.arange(count, dtype=jnp.float32),
        born=jnp.asarray(np.where(is_filled, 100 + np.arange(count), -1)),
        **fields,
    )
    return state.replace(buffer=buffer, iteration=jnp.int32(10))


def choices(made: LevelReplaySampler, state: Any, count: int = 4000) -> Any:
    keys = jax.random.split(jax.random.key(4), count)
    return jax.tree.map(np.asarray, jax.jit(made.choose)(state, keys))


def shares(found: Any) -> list[float]:
    return (np.bincount(found["kind"], minlength=3) / len(found["kind"])).tolist()


@pytest.mark.slow
def test_replays_have_their_share_and_levels_their_chances():
    made = sampler()
    found = choices(made, filled_state(made, 10))
    np.testing.assert_allclose(shares(found), [0.2, 0.8, 0], atol=0.02)
    replayed = found["kind"] == 1
    slot = found["slot"][replayed]
    np.testing.assert_array_equal(found["task"]["walls"][replayed][:, 0], slot)
    np.testing.assert_array_equal(found["born"][replayed], 100 + slot)
    assert (found["slot"][~replayed] == -1).all()
    assert len(np.unique(found["task"]["walls"][~replayed], axis=0)) > 0.9 * (~replayed).sum()
    state = filled_state(made, 10)
    chance = np.asarray(levels_of.chances(made.levels, state.buffer, state.iteration))
    np.testing.assert_allclose(np.bincount(slot, minlength=CAPACITY) / len(slot), chance, atol=0.03)


@pytest.mark.slow
def test_nothing_is_replayed_before_the_buffer_is_filled_enough():
    made = sampler(**{"levels.fill": 0.5})
    assert shares(choices(made, filled_state(made, 9))) == [1, 0, 0]
    assert shares(choices(made, filled_state(made, 10)))[1] > 0.7
    assert shares(choices(made, made.init(jax.random.key(0)))) == [1, 0, 0]
    # Of two levels in all, the tenth episode counts, though it finds its level in the buffer.
    assert shares(choices(made, filled_state(made, 2, next_born=jnp.int32(9)))) == [1, 0, 0]
    assert shares(choices(made, filled_state(made, 2, next_born=jnp.int32(10))))[1] > 0.7


@pytest.mark.slow
def test_edits_are_as_many_as_replays_and_start_from_their_levels():
    made = sampler(name="accel")
    found = choices(made, filled_state(made, 10))
    np.testing.assert_allclose(shares(found), [1 / 9, 4 / 9, 4 / 9], atol=0.03)
    edited = found["kind"] == 2
    assert (found["slot"][edited] == -1).all()
    # Five edits leave most of an empty maze empty.
    assert (found["task"]["walls"][edited][:, 1:] != 0).any(1).mean() > 0.5
    assert np.bitwise_count(found["task"]["walls"][edited][:, 1:]).sum(1).max() <= 5


@pytest.mark.slow
def test_a_pool_shows_each_level_once_before_it_replays_alone():
    made = sampler(POOL)
    found = choices(made, filled_state(made, 2))
    np.testing.assert_allclose(shares(found), [0.2, 0.8, 0], atol=0.03)
    new = found["kind"] == 0
    assert set(found["slot"][new]) == {2, 3}
    assert set(found["slot"][~new]) == {0, 1}
    np.testing.assert_array_equal(found["task"]["level"], found["slot"])
    assert shares(choices(made, filled_state(made, LEVELS))) == [0, 1, 0]


def test_robust_replay_learns_from_replays_alone():
    kind = {"kind": jnp.array([[0, 1, 2]])}
    assert sampler().learns_from(kind) is None
    for name in ("robust_plr", "accel"):
        assert sampler(name=name).learns_from(kind).tolist() == [[False, True, False]]


@pytest.mark.parametrize(
    ("env", "fields", "text"),
    [
        ("jaxrl:Navigation", {"curriculum.name": "accel"}, "jaxrl:Navigation has no mutate"),
        (
            "tests.experience.task_environments:Corridor",
            {},
            r"`curriculum.name` .='plr'. needs levels: .*Corridor has neither draw_task.key. nor level_pool",
        ),
        (POOL, {"curriculum.name": "accel"}, r"`curriculum.name` .='accel'. edits levels: .* has no mutate"),
        (MAZE, {"normalize.rewards": True}, r"`levels.score` .='max_mc'. compares returns with values"),
        (
            MAZE,
            {"curriculum.name": "learnability", "levels.kept": 9, "levels.candidates": 8},
            r"`levels.kept` .=9. must be at most `levels.candidates` .=8.",
        ),
        (
            "tests.experience.task_environments:Silent",
            {"curriculum.name": "learnability"},
            r"`curriculum.name` .='learnability'. needs `env.success`",
        ),
    ],
)
def test_what_does_not_fit_is_refused(env, fields, text):
    with pytest.raises(ConfigError, match=text):
        sampler(env, **fields)
