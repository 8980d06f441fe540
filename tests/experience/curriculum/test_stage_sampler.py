"""The curriculum by stages: its decisions against plain Python, and its tasks."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config import ConfigError, default_config, resolve
from jaxrl.envs import registry
from jaxrl.envs.tasks import task_scales
from jaxrl.experience import curriculum
from jaxrl.experience.curriculum.stage_sampler import StageSampler
from jaxrl.experience.statistics import EpisodeReports
from jaxrl.metrics import reduction
from jaxrl.types import Axis, EpisodeRows
from tests.experience.curriculum.reference import Dice, PlainCurriculum

T, NAVIGATION = 8, "jaxrl:Navigation"
STAGES: tuple[dict[str, Any], ...] = (
    {"success": 0.7, "least_steps": 100},
    {"success": 0.5, "return": 1.0, "cost": "collision", "collisions": 0.7, "back": 0.3, "window": 5},
    {"most_steps": 300, "back": 0.3},
    {"back": 0.3, "window": 17},
)


def sampler(*stages: dict[str, Any], env: str = NAVIGATION, **fields: Any) -> StageSampler:
    config = default_config()
    config.env.name = env
    config.env.num_envs = fields.pop("num_envs", 6)
    config.ppo.num_minibatches = 1
    config.curriculum.stages = tuple(json.dumps({"least_steps": 0, **stage}) for stage in stages)
    for name, value in fields.items():
        config.curriculum[name] = value
    resolved, made = resolve(config, 1), registry.make(env)
    found = curriculum.build(resolved, made, EpisodeReports.of(made.spec))
    assert isinstance(found, StageSampler)
    return found


def rows(dice: dict[str, np.ndarray]) -> EpisodeRows:
    ended = jnp.asarray(dice["ended"])
    return EpisodeRows(
        done=ended,
        ended=ended,
        task={"stage": jnp.asarray(dice["label"][..., 0]), "visit": jnp.asarray(dice["label"][..., 1])},
        episode_return=jnp.asarray(dice["return"]),
        length=jnp.ones(ended.shape, jnp.int32),
        success=jnp.asarray(dice["success"]),
        reports={"collision": jnp.asarray(dice["cost"])},
    )


@pytest.mark.slow
@pytest.mark.parametrize(("num_envs", "window", "devices"), [(6, 11, 1), (6, 4, 2), (4, 8, 2)])
def test_it_decides_as_plain_python_does(num_envs: int, window: int, devices: int) -> None:
    made = sampler(*({"window": window, **stage} for stage in STAGES), num_envs=num_envs)
    plain, dice = PlainCurriculum(made.stages, num_envs), Dice(np.random.default_rng(num_envs), num_envs)
    axis = Axis("data", devices)

    def of_device(state: Any, share: EpisodeRows) -> Any:
        state = made.update(state, share, {}, axis)
        return state, made.report(state, share, axis)

    update = jax.jit(jax.vmap(of_device, in_axes=(None, 1), axis_name="data"))
    state, visited = made.init(jax.random.key(0)), []
    for i in range(120):
        # Success comes and goes, so that stages are reached and lost.
        dealt = dice.rollout(T, plain.stage, plain.visit, success=0.9 if i // 20 % 2 == 0 else 0.1)
        for t, env in zip(*np.nonzero(dealt["ended"]), strict=True):
            numbers = tuple(float(dealt[name][t, env]) for name in ("success", "return", "cost"))
            plain.end_episode(env, *dealt["label"][t, env], numbers)  # type: ignore[arg-type]
        earlier = dealt["success"][dealt["ended"] & (dealt["label"][..., 0] < plain.stage)]
        before = plain.stage
        plain.end_rollout(T * num_envs)
        visited.append(plain.stage)
        share = jax.tree.map(lambda x: x.reshape(T, devices, -1, *x.shape[2:]), rows(dealt))
        states, reports = update(state, share)
        jax.tree.map(lambda x: np.testing.assert_array_equal(x[0], x[-1]), (states, reports))
        state = jax.tree.map(lambda x: x[0], states)
        assert (state.stage, state.visit) == (plain.stage, plain.visit), i
        assert (state.steps, state.episodes) == (plain.steps, plain.episodes)
        told = reduction.row(jax.tree.map(lambda x: x[0], reports))
        seen = plain.window()
        expected = {"stage": plain.stage + 1, "steps": plain.steps, "episodes": plain.episodes}
        if seen:
            expected |= {"success_rate": np.mean(seen, axis=0)[0], "collisions": np.mean(seen, axis=0)[2]}
        if plain.stage == before and len(earlier):
            assert told["curriculum/earlier_success_rate"] == pytest.approx(earlier.mean())
        told.pop("curriculum/earlier_success_rate", None)
        assert told == pytest.approx({f"curriculum/{name}": x for name, x in expected.items()})
    assert set(visited) == {0, 1, 2, 3}
    assert (np.diff(visited) == -1).any()


def test_slow_environments_count_as_much_as_fast_ones() -> None:
    # correctness 39: environment 0 fails in every step, the others succeed in every fourth. Of the first 8
    # episodes to end most are failures, and of 2 of each environment 2.
    made = sampler({"success": 0.7, "window": 8}, {}, num_envs=4)
    ended = np.zeros((T, 4), bool)
    ended[:, 0] = ended[3::4] = True
    success = np.ones((T, 4), np.float32) * (np.arange(4) > 0)
    label = np.zeros((T, 4, 2), np.int32)
    dice = {"ended": ended, "success": success, "return": success, "cost": success, "label": label}
    update = jax.jit(lambda state, rows: made.update(state, rows, {}, Axis()))
    state = update(made.init(jax.random.key(0)), rows(dice))
    assert state.stage == 1


def test_tasks_are_of_the_stage_and_a_share_of_earlier_ones() -> None:
    stages = (
        {"task": {"obstacles": 1, "goal_distance": [2, 3]}, "success": 1, "earlier": 1},
        {"task": {"obstacles": [2, 4], "sensor_noise": 0.5}, "success": 1, "earlier": 0.5},
        {"earlier": 0.3},
    )
    made = sampler(*stages)
    choose = jax.jit(lambda state: made.choose(state, jax.random.split(jax.random.key(3), 4000)))
    for present, earlier in enumerate([0.0, 0.5, 0.3]):
        state = made.init(jax.random.key(0)).replace(stage=jnp.int32(present), visit=jnp.int32(7))
        chosen = choose(state)
        assert (chosen["visit"] == 7).all()
        stage, task = np.asarray(chosen["stage"]), jax.tree.map(np.asarray, made.environment_task(chosen))
        assert np.mean(stage < present) == pytest.approx(earlier, abs=0.04)
        if present == 2:
            assert np.mean(stage == 0) == pytest.approx(0.15, abs=0.03)
        first, second, third = (stage == i for i in range(3))
        assert set(task["obstacles"][first]) == {1}
        assert (task["goal_distance"][first] >= 2).all()
        assert (task["goal_distance"][first] <= 3).all()
        assert np.std(task["goal_distance"][first]) == pytest.approx(1 / 12**0.5, abs=0.03)
        assert set(task["obstacles"][second]) <= {2, 3, 4}
        if present == 1:
            shares = np.bincount(task["obstacles"][second])[2:] / second.sum()
            np.testing.assert_allclose(shares, 1 / 3, atol=0.05)
        # What a stage leaves out is the default task's.
        assert (task["goal_distance"][second] == 15).all()
        assert (task["obstacles"][third] == 8).all()
        assert np.allclose(task["sensor_noise"], np.where(second, 0.5, 0.02))
        space = dict(registry.make(NAVIGATION).spec.task_space.spaces)
        assert {name: x.dtype for name, x in task.items()} == {n: np.dtype(x.dtype) for n, x in space.items()}
    assert choose._cache_size() == 1


def draws_of(made: Any) -> Any:
    """500 draws."""
    keys = jax.random.split(jax.random.key(3), 500)
    return jax.jit(lambda key: made.choose(made.init(key), keys))(jax.random.key(0))


def test_categories_are_drawn_level_by_level() -> None:
    env = "jaxrl:Platformer"
    made = sampler({"task": {"category": ["simple", "complex"]}}, env=env, start_stage=1)
    tasks = draws_of(made)["task"]
    levels = registry.make(env).levels
    wanted = {i for i, level in enumerate(levels) if level.category in ("simple", "complex")}
    assert set(np.asarray(tasks["level"]).tolist()) == wanted


def drawn(task: dict[str, Any], env: str) -> dict[str, set[float]]:
    """The values of each field in many tasks of a stage."""
    tasks = draws_of(sampler({"task": task}, env=env, start_stage=1))["task"]
    return {name: {float(value) for value in np.asarray(x)} for name, x in tasks.items()}


@pytest.mark.parametrize(("successes", "stage"), [(2, 1), (1, 0)])
def test_a_stage_is_left_for_the_one_before_below_its_limit_not_at_it(successes: int, stage: int) -> None:
    made = sampler({"success": 0.9, "window": 4}, {"back": 0.5, "window": 4}, num_envs=4, start_stage=2)
    ended = np.ones((1, 4), bool)
    dealt = {
        "ended": ended,
        "label": np.tile([1, 0], (1, 4, 1)),
        "return": np.zeros((1, 4), np.float32),
        "success": (np.arange(4) < successes).astype(np.float32)[None],
        "cost": np.zeros((1, 4), np.float32),
    }
    update = jax.jit(lambda state: made.update(state, rows(dealt), {}, Axis()))
    assert int(update(made.init(jax.random.key(0))).stage) == stage


@pytest.mark.slow
def test_difficulty_of_a_room() -> None:
    assert drawn({"difficulty": 0.5}, "jaxrl:Navigation(obstacles=6,sensor_noise=0.5)") == {
        "obstacles": {3.0},
        "moving": {2.0},
        "obstacle_speed": {0.5},
        "goal_distance": {9.0},  # of 3 to 15 m
        "room": {-1.0},  # any
        "sensor_noise": {0.25},
    }
    assert drawn({"difficulty": 0.0}, NAVIGATION)["obstacles"] == {0.0}
    hardest = registry.make(NAVIGATION).default_task
    assert drawn({"difficulty": 1.0}, NAVIGATION) == {name: {float(x)} for name, x in hardest.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("difficulty", "count"), [(0.0, 1), (0.5, 3), (1.0, 5)])
def test_difficulty_of_the_platformer_is_its_first_categories(difficulty: float, count: int) -> None:
    env = registry.make("jaxrl:Platformer")
    groups = [*env.task_groups["category"].members.values()][:count]
    assert drawn({"difficulty": difficulty}, "jaxrl:Platformer")["level"] == {
        *map(float, np.concatenate(groups))
    }


def test_wrappers_pass_the_scales_on() -> None:
    wrapped = registry.make("jaxrl:Platformer", ("time_limit(steps=5)",))
    assert task_scales(wrapped).keys() == {"difficulty"}
    assert not task_scales(registry.make("gymnax:CartPole-v1"))


WRONG = [
    ({"difficulty": 1.5}, "`task.difficulty` (=1.5) must be a number from 0 to 1 in jaxrl:Navigation"),
    ({"difficulty": [0, 1]}, "`task.difficulty` (=(0.0, 1.0)) must be a number from 0 to 1"),
    ({"difficulty": 1, "moving": 2}, "`task.moving` sets moving again"),
    ({"obstacles": 9}, "`task.obstacles` (=9.0) must lie between 0 and 8 in jaxrl:Navigation"),
    ({"obstacles": 1.5}, "`task.obstacles` (=1.5) must be a whole number"),
    ({"obstacles": "many"}, "`task.obstacles` (=('many',)) must be a number or a range"),
    (
        {"obstacle": 1},
        "`task.obstacle` is no field of the tasks of jaxrl:Navigation; did you mean `obstacles`?",
    ),
]


@pytest.mark.parametrize(("task", "message"), WRONG)
def test_tasks_that_do_not_fit_the_environment(task: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        sampler({"success": 1}, {"task": task})
    assert str(error.value).startswith(f"`curriculum.stages`: stage 2: {message}")


@pytest.mark.parametrize(
    ("stage", "env", "message"),
    [
        (
            {"cost": "mines"},
            NAVIGATION,
            "`cost` (='mines') is not reported by jaxrl:Navigation, which reports",
        ),
        ({"epsilon": 0.1}, NAVIGATION, "`epsilon` is for custom loops"),
        ({"task": {"category": "hard"}}, "jaxrl:Platformer", "`task.category` (='hard') is no category of"),
        (
            {"task": {"level": 0, "category": "simple"}},
            "jaxrl:Platformer",
            "`task.category` sets level again",
        ),
        ({"back": 0.5}, "tests.experience.task_environments:Silent", "`back` needs `env.success`"),
    ],
)
def test_stages_that_do_not_fit_the_environment(stage: dict[str, Any], env: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        sampler(stage, env=env)
    assert str(error.value).startswith(f"`curriculum.stages`: stage 1: {message}")


def test_a_success_that_nobody_declared_ends_no_stage() -> None:
    config = default_config()
    config.env.name = "tests.experience.task_environments:Corridor"
    config.curriculum.stages = ('{"success": 0.8}', "{}")
    env = registry.make(config.env.name)
    reports = EpisodeReports.of(dataclasses.replace(env.spec, reports=(), open_info=True))
    with pytest.raises(ConfigError, match="needs `env.success`, for .* does not declare when"):
        curriculum.build(resolve(config, 1), env, reports)


def test_one_of_ones_own() -> None:
    config = default_config()
    config.env.name = "tests.experience.task_environments:Corridor"
    env = registry.make(config.env.name)
    for name, message in [
        ("tests.experience.task_environments:Corridor", "must be a class that derives from"),
        ("tests.experience.task_environments:Missing", "has no Missing"),
        ("tests.experience.task_environments:Alternating", "takes no arguments"),
    ]:
        config.curriculum.name = name
        with pytest.raises(ConfigError, match=message):
            curriculum.build(resolve(config, 1), env, EpisodeReports())
    config.curriculum.name = "tests.experience.task_environments:FromConfig"
    found = curriculum.build(resolve(config, 1), env, EpisodeReports())
    assert type(found).__name__ == "FromConfig"


def test_events_are_changes_of_stage_since_the_row_before() -> None:
    made = sampler({"success": 1, "name": "easy"}, {})
    row = {"steps": 1000.0, "curriculum/stage": 2.0, "curriculum/steps": 300.0}
    assert made.event(row, 400) == "stage 2 of 2 (stage 2) since step 700"
    assert made.event(row, 300) == ""  # it was in the row before
