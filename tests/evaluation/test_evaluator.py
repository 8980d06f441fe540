"""Results of N played episodes, and how long these may be."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxrl.config.sections import Success
from jaxrl.envs.base import Box, Discrete, EnvSpec, InfoMetric
from jaxrl.envs.mixture import TaskMixture
from jaxrl.envs.vector import VectorEnv
from jaxrl.envs.vector_mixture import vector_env
from jaxrl.envs.wrappers.episodes import TimeLimit
from jaxrl.evaluation import evaluator
from jaxrl.evaluation.result import Result, report_values
from jaxrl.experience.episodes import EpisodePlayer, Episodes
from jaxrl.experience.statistics import EpisodeReports
from jaxrl.types import Axis, Tally
from tests.compiled_programs import Noise, tiny_agent


def episodes(returns: list[list[float]], lengths: list[list[int]], played: list[list[int]]) -> Episodes:
    asked = jnp.array(played, bool)
    return Episodes(jnp.array(returns, jnp.float32), jnp.array(lengths, jnp.int32), asked, asked)


def test_statistics_by_hand() -> None:
    # Two environments, the second with one episode less: its empty slot must not count.
    result = Result.of(episodes([[1, 2], [6, -99]], [[10, 20], [60, 99]], [[1, 1], [1, 0]]))
    assert (result.episodes, result.unfinished) == (3, 0)
    assert (result.mean, result.minimum, result.maximum) == (3, 1, 6)
    assert result.std == pytest.approx(np.sqrt((4 + 1 + 9) / 2))
    assert result.mean_length == 30
    assert result.std_length == pytest.approx(np.sqrt((400 + 100 + 900) / 2))


def test_confidence_interval() -> None:
    returns = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    ones = np.ones(returns.shape, int).tolist()
    result = Result.of(episodes(returns.tolist(), ones, ones))
    expected = stats.norm.interval(0.95, returns.mean(dtype=np.float64), stats.sem(returns.ravel(), ddof=1))
    np.testing.assert_allclose([result.low, result.high], expected, rtol=1e-5)


def test_the_interval_of_a_mean_ends_at_the_highest_return() -> None:
    result = Result.of(episodes([[500], [500], [490]], [[1], [1], [1]], [[1], [1], [1]]))
    assert result.mean < result.high == 500
    assert 490 <= result.low < result.mean


def test_one_episode_has_no_spread() -> None:
    result = Result.of(episodes([[4]], [[2]], [[1]]))
    assert (result.mean, result.std, result.low, result.high) == (4, 0, 4, 4)
    assert (result.mean_length, result.std_length) == (2, 0)


def test_what_the_environment_reports_is_averaged_over_the_episodes_that_say_it() -> None:
    reports = EpisodeReports((("keys", InfoMetric("keys", "sum")), ("silent", InfoMetric("silent"))))
    played = episodes([[5], [9], [1]], [[10], [20], [30]], [[1], [1], [1]])
    keys = Tally(jnp.array([[2.0], [4.0], [0.0]]), jnp.array([[3], [1], [0]]))
    silent = Tally(jnp.zeros((3, 1)), jnp.zeros((3, 1)))
    told = dataclasses.replace(played, tallies={"keys": keys, "silent": silent})
    assert report_values(reports, told) == {"env/keys": 3}
    ruled = dataclasses.replace(reports, success=Success.parse("return >= 5", "env.success"))
    assert report_values(ruled, told) == {"env/keys": 3, "success_rate": pytest.approx(2 / 3)}


def test_episodes_that_say_nothing_of_a_success_are_none() -> None:
    spec = EnvSpec("test:Told", Box.of(0, 1, (1,)), Discrete(2), reports=(InfoMetric("success"),))
    played = episodes([[5], [9], [1]], [[10], [20], [30]], [[1], [1], [1]])
    said = Tally(jnp.array([[1.0], [0.0], [0.0]]), jnp.array([[1], [0], [0]]))
    silent = Tally(jnp.zeros((3, 1)), jnp.zeros((3, 1)))

    def rates(rule: str, tally: Tally) -> dict[str, float]:
        reports = EpisodeReports.of(spec, rule)
        told = {label: silent for label, _ in reports.entries} | {"success_rate": tally}
        return report_values(reports, dataclasses.replace(played, tallies=told))

    for rule in ("", "info.success", "info.goal > 0.5"):
        assert rates(rule, said) == {"success_rate": pytest.approx(1 / 3)}, rule
    # Nothing is known where nobody declares it and nobody says it.
    assert rates("", silent) == rates("info.success", silent) == {"success_rate": 0}
    assert rates("info.goal > 0.5", silent) == {}


def test_unfinished_episodes_are_counted_among_the_played() -> None:
    played = jnp.array([[True, True], [True, False]])
    finished = jnp.array([[True, False], [False, False]])
    zeros = jnp.zeros((2, 2))
    result = Result.of(Episodes(zeros, zeros.astype(int), played, finished))
    assert result.unfinished == 2
    assert result.cut == "2 of 3 episodes were cut off after 10,000 steps: the environment has no time limit"
    assert not Result.of(Episodes(zeros, zeros.astype(int), played, played)).cut


def test_large_returns_keep_their_spread() -> None:
    # Statistics are taken in float64: float32 cannot tell 2e7 from 2e7 + 1 once they are squared or summed.
    result = Result.of(episodes([[2e7], [2e7 + 2]], [[1], [1]], [[1], [1]]))
    assert result.mean == 2e7 + 1
    assert result.std == pytest.approx(np.sqrt(2))


# Seven of one environment take several rounds, too.
@pytest.mark.slow
@pytest.mark.parametrize(("count", "tasks"), [(7, 1), (11, 3)])
def test_every_number_of_devices_plays_the_same_episodes(
    count: int, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At most four environments at a time: three devices have places for six, and those of tasks for nine.
    monkeypatch.setattr(evaluator, "MAX_ENVIRONMENTS", 4)
    limited = [TimeLimit(Noise(), 3 + task) for task in range(tasks)]
    env = TaskMixture("test:Mixture", limited) if tasks > 1 else limited[0]
    agent = tiny_agent(env.spec)
    state = jax.jit(agent.init)(jax.random.key(0))

    def returns(devices: int) -> np.ndarray:
        modes = ("greedy", "sampled")
        program = evaluator.player(agent, vector_env(env), Axis("data", devices), count, modes)
        on_devices = jax.vmap(
            lambda _: program(state, jax.random.key(1)), axis_name="data", axis_size=devices
        )
        played = jax.jit(on_devices)(jnp.arange(devices))
        greedy, sampled = (
            np.sort(np.asarray(x.episode_return)[np.asarray(x.played)]) for x in played.values()
        )
        np.testing.assert_array_equal(greedy, sampled)  # the environment is deaf to actions
        return greedy

    one = returns(1)
    assert len(one) == len(np.unique(one)) == count
    for devices in (2, 3):
        np.testing.assert_array_equal(returns(devices), one)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [2**30, 2**31 - 1, 10**12])
def test_time_limits_at_the_end_of_what_an_int32_holds(limit: int) -> None:
    # Four episodes in each environment: 2^30 steps each would be 2^32.
    env = TimeLimit(Noise(), limit)
    agent = tiny_agent(env.spec)
    state = jax.jit(agent.init)(jax.random.key(0))
    keys = jax.random.split(jax.random.key(0), 2)
    player = EpisodePlayer(agent, VectorEnv(env))
    episodes = jax.jit(lambda: player.play(state, keys, jnp.array([4, 3]), 4, False))()
    np.testing.assert_array_equal(episodes.played.sum(axis=1), [4, 3])
    np.testing.assert_array_equal(episodes.finished, episodes.played)
