"""Reports of episodes, against a plain loop over single steps."""

from __future__ import annotations

import dataclasses
import statistics

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config import ConfigError
from jaxrl.envs.base import Box, Discrete, EnvSpec, InfoMetric, TimeStep
from jaxrl.experience.collector import declared_metrics, episode_metrics
from jaxrl.experience.host.episodes import EpisodeCounter
from jaxrl.experience.statistics import EpisodeReports, count_episodes, over_devices
from jaxrl.metrics import reduction
from jaxrl.types import Axis, EpisodeStats, EpisodeTotals
from tests.compiled_programs import Noise, start, tiny_program

T, B, ROLLOUTS = 6, 4, 5
REPORTS = tuple(InfoMetric(name, name) for name in ("last", "sum", "max", "mean"))
SPEC = EnvSpec("test:Told", Box.of(0, 1, (1,)), Discrete(2), reports=(*REPORTS, InfoMetric("success", "max")))
REPORTED = tuple(report.name for report in REPORTS)
SPEC_NAMES = (*REPORTED, "success")


def told(seed: int) -> dict[str, np.ndarray]:
    """The numbers that T steps of B environments said: NaN is nothing. Large ones with small differences."""
    rng = np.random.default_rng(seed)
    said = rng.normal(size=(5, T, B)).astype(np.float32)
    said[rng.random(said.shape) < 0.3] = np.nan
    return {
        "reward": (1000 + rng.integers(-2, 3, (T, B))).astype(np.float32),
        "done": rng.random((T, B)) < 0.2,
        **dict(zip(("last", "sum", "max", "mean"), said[:4], strict=True)),
        "success": np.where(np.isnan(said[4]), np.nan, said[4] > 0.5).astype(np.float32),
    }


def by_hand(steps: list[dict[str, np.ndarray]], skip: bool) -> dict[str, list[float]]:
    """Of every episode that ended, by what is reported of it; an entry that said nothing is left out."""
    found: dict[str, list[float]] = {name: [] for name in ("return", "length", *SPEC_NAMES)}
    for b in range(B):
        rows = [{name: x[t, b] for name, x in rollout.items()} for rollout in steps for t in range(T)]
        ends = [i for i, row in enumerate(rows) if row["done"]]
        episodes = [
            rows[a:z] for a, z in zip([0, *(e + 1 for e in ends)], [e + 1 for e in ends], strict=False)
        ]
        for episode in episodes[1 if skip else 0 :]:
            found["return"].append(float(sum(row["reward"] for row in episode)))
            found["length"].append(len(episode))
            for name in SPEC_NAMES:
                said = [float(row[name]) for row in episode if not np.isnan(row[name])]
                combine = {"last": lambda x: x[-1], "sum": sum, "max": max, "mean": statistics.fmean}
                if said:
                    found[name].append(combine.get(name, max)(said))
    return found


STEPS = [told(seed) for seed in range(ROLLOUTS)]


def on_device(reports: EpisodeReports, skip: bool) -> list[EpisodeTotals]:
    count = jax.jit(lambda *x: count_episodes(reports, *x))
    zeros = jnp.zeros(B)
    at = EpisodeStats(zeros, zeros.astype(jnp.int32), jnp.full(B, skip), reports.begin(B))
    totals = []
    for steps in STEPS:
        info = {key: steps[key] for key in reports.info_keys}
        at, total, rows = count(at, steps["reward"], steps["done"], info)
        assert rows is None  # of tasks, of which there are none
        totals.append(total)
    return totals


def on_host(reports: EpisodeReports, skip: bool) -> list[EpisodeTotals]:
    """The same with a row between two episodes in which nothing counts."""
    book = EpisodeCounter(B, skip, reports)
    totals = []
    for steps in STEPS:
        rows = {name: np.repeat(x, 2, axis=0) for name, x in steps.items()}
        first = np.zeros((2 * T, B), bool)
        first[1::2] = True
        noise = {key: np.where(first, np.float32(1e6), rows[key]) for key in reports.info_keys}
        totals.append(book.count(first, np.where(first, 1e6, rows["reward"]), rows["done"], noise)[0])
    return totals


def row_of(totals: list[EpisodeTotals], reports: EpisodeReports) -> dict[str, float]:
    interval = reduction.Interval.empty(declared_metrics(reports))
    for total in totals:
        interval = interval.add(episode_metrics(over_devices(Axis(), jax.tree.map(jnp.asarray, total))))
    return reduction.row(interval.metrics)


@pytest.mark.slow
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("count", [on_device, on_host])
def test_everything_equals_a_loop_over_single_steps(count, skip) -> None:
    reports = EpisodeReports.of(SPEC)
    row, expected = row_of(count(reports, skip), reports), by_hand(STEPS, skip)
    returns = expected["return"]
    assert row["episode/count"] == len(returns) > 10
    assert row["episode/return"] == pytest.approx(statistics.fmean(returns), rel=1e-6)
    assert row["episode/length"] == pytest.approx(statistics.fmean(expected["length"]))
    assert (row["episode/return_min"], row["episode/return_max"]) == (min(returns), max(returns))
    assert row["episode/return_std"] == pytest.approx(statistics.stdev(returns), rel=1e-4)
    for name in REPORTED:
        assert row[f"env/{name}"] == pytest.approx(statistics.fmean(expected[name]), rel=1e-4), name
    assert "env/success" not in row
    # An episode that says nothing of a success is none.
    assert len(expected["success"]) < len(returns)
    assert row["env/success_rate"] == pytest.approx(sum(expected["success"]) / len(returns), rel=1e-6)


@pytest.mark.parametrize(
    ("rule", "name", "holds"),
    [
        ("return >= 4000", "return", lambda x: x >= 4000),
        pytest.param("length < 5", "length", lambda x: x < 5, marks=pytest.mark.slow),
        pytest.param("info.max > 0.5", "max", lambda x: x > 0.5, marks=pytest.mark.slow),
    ],
)
def test_a_rule_decides_what_a_success_is(rule, name, holds) -> None:
    reports = EpisodeReports.of(SPEC, rule)
    rows = [row_of(count(reports, False), reports) for count in (on_device, on_host)]
    expected = by_hand(STEPS, False)
    rate = sum(holds(x) for x in expected[name]) / len(expected["return"])
    assert 0 < rate < 1
    for row in rows:
        assert row["env/success_rate"] == pytest.approx(rate)
        # What the environment calls success is then an entry like the others.
        assert row["env/success"] == pytest.approx(statistics.fmean(expected["success"]))


@pytest.mark.slow
def test_devices_together_report_what_one_would() -> None:
    reports = EpisodeReports.of(SPEC)
    together = row_of(on_device(reports, False), reports)
    # Each rollout stands for a device; the last has no episode.
    of_each = [jax.tree.map(jnp.asarray, x) for x in on_device(reports, False)]
    of_each.append(jax.tree.map(jnp.zeros_like, of_each[0]))
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *of_each)
    axis = Axis("devices", len(of_each))
    combine = jax.vmap(lambda x: over_devices(axis, x), axis_name="devices")
    found = jax.tree.map(lambda x: x[0], jax.jit(combine)(stacked))
    row = reduction.row(episode_metrics(found))
    assert row == {name: pytest.approx(x, rel=1e-5) for name, x in together.items()}


def test_nothing_is_reported_where_no_episode_ended() -> None:
    reports = EpisodeReports.of(SPEC)
    ended = dataclasses.replace(on_device(reports, False)[0], count=jnp.float32(0))
    none = jax.tree.map(jnp.zeros_like, ended)
    assert row_of([none], reports) == {"episode/count": 0.0}


def test_environment_that_declares_nothing_has_no_tallies() -> None:
    reports = EpisodeReports.of(dataclasses.replace(SPEC, reports=()))
    assert (reports.labels, reports.info_keys, reports.begin(B)) == ((), (), {})


@pytest.mark.parametrize("count", [on_device, on_host])
def test_success_as_stable_baselines3_has_it(count, monkeypatch) -> None:
    """Its `Monitor` and `EvalCallback` average `info["is_success"]` over the ends that have it."""
    reports = EpisodeReports.of(dataclasses.replace(SPEC, reports=(), open_info=True))
    assert not reports.knows_success  # beforehand
    for key, known in (("never", False), ("success", True)):
        nothing = np.full((T, B), np.nan, np.float32)
        at_ends = [np.where(steps["done"], steps.get(key, nothing), np.nan) for steps in STEPS]
        said = [steps | {"is_success": x} for steps, x in zip(STEPS, at_ends, strict=True)]
        with monkeypatch.context() as patch:
            patch.setattr("tests.experience.test_statistics.STEPS", said)
            row = row_of(count(reports, False), reports)
        if known:
            assert 0 < row["env/success_rate"] < 1
            assert row["env/success_rate"] == pytest.approx(np.nanmean(at_ends))
        else:
            assert "env/success_rate" not in row


def test_success_is_what_is_declared_before_what_is_assumed() -> None:
    said = InfoMetric("is_success", "max")
    for spec in (
        dataclasses.replace(SPEC, reports=(said,)),
        dataclasses.replace(SPEC, reports=(said,), open_info=True),
    ):
        reports = EpisodeReports.of(spec)
        assert (reports.entries, reports.knows_success) == ((("success_rate", said),), True)
    both = EpisodeReports.of(dataclasses.replace(SPEC, reports=(said, InfoMetric("success")), open_info=True))
    assert dict(both.entries)["success_rate"] == InfoMetric("success")
    rule = EpisodeReports.of(dataclasses.replace(SPEC, reports=(), open_info=True), "return > 1")
    assert (rule.entries, rule.knows_success) == ((), True)


class Telling(Noise):
    """`Noise` that tells its time, and a success where an episode terminates."""

    def __init__(self) -> None:
        super().__init__()
        reports = (InfoMetric("time", "max"), InfoMetric("success", "last"))
        self.spec = dataclasses.replace(self.spec, reports=reports)

    def step(self, key, state, action):
        state, timestep = super().step(key, state, action)
        info = {"time": state.time, "success": timestep.terminated, "more": jnp.zeros(3)}
        return state, dataclasses.replace(timestep, info=info, score=2 * timestep.reward)


@pytest.mark.slow
def test_collector_counts_what_the_environments_tell() -> None:
    told_by_rollouts()


def told_by_rollouts():
    """(trajectory, totals) of the second of two rollouts, which begins within episodes."""
    program = tiny_program(Telling())
    state = start(program)
    rollout = jax.jit(program.rollout)
    for i in range(2):
        state, trajectory, totals = rollout(state.replace(iteration=jnp.int32(i)))
    assert totals.count > 5
    # The time of the last step is the length of the episode; statistics report the score.
    assert totals.tallies["time"].value == totals.length
    terminated = np.asarray(trajectory.terminated).sum()
    done = np.asarray(trajectory.terminated | trajectory.truncated).sum()
    assert np.asarray(totals.tallies["success_rate"].value) == terminated < done
    metrics = jax.eval_shape(program.update, state, trajectory, totals)[1]
    assert metrics.keys() > {"env/time", "env/success_rate"}
    return trajectory, totals


@pytest.mark.slow
def test_what_is_told_changes_nothing_of_what_is_learnt_from() -> None:
    trajectory, totals = told_by_rollouts()
    program = tiny_program()
    state = start(program)
    rollout = jax.jit(program.rollout)
    for i in range(2):
        state, plain_trajectory, plain_totals = rollout(state.replace(iteration=jnp.int32(i)))
    jax.tree.map(np.testing.assert_array_equal, trajectory, plain_trajectory)
    assert totals.episode_return == pytest.approx(2 * float(plain_totals.episode_return), rel=1e-6)


@pytest.mark.parametrize(
    ("rule", "message"),
    [("often", "must be a comparison"), ("return > many", "must compare with a number")],
)
def test_wrong_rule(rule: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EpisodeReports.of(SPEC, rule)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: InfoMetric("a b"), "InfoMetric.name"),
        (lambda: InfoMetric("success_rate"), "InfoMetric.name"),
        (lambda: InfoMetric("x", "median"), "must be one of last, sum, max, mean"),
        (
            lambda: dataclasses.replace(SPEC, reports=(InfoMetric("x"), InfoMetric("x", "sum"))),
            "two reports of 'x'",
        ),
        (lambda: dataclasses.replace(SPEC, reports=["x"]), "must be a tuple of jaxrl.InfoMetric"),
    ],
)
def test_wrong_declaration(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_the_protocol_has_no_score_by_default() -> None:
    step = TimeStep(jnp.zeros(1), jnp.float32(2), jnp.bool_(False), jnp.bool_(False))
    assert step.reported_reward == 2
    assert dataclasses.replace(step, score=jnp.float32(3)).reported_reward == 3
