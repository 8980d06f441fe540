"""Solve rates over levels: which are chosen, the worst of them, batches and devices, the command."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.commands import evaluate
from jaxrl.config import ConfigError
from jaxrl.envs.vector import VectorEnv
from jaxrl.evaluation import levels as level_rates
from jaxrl.experience.statistics import EpisodeReports
from jaxrl.parallel.sharding import Topology
from jaxrl.types import Acting
from tests.commands.refusals import refused
from tests.compiled_programs import tiny_agent
from tests.experience.task_environments import Corridor, DrawnCorridor, PooledCorridor
from tests.inference.runs import save_run


def test_the_worst_are_chosen_by_the_first_rates_and_scored_by_the_second():
    first = np.array([0.5, 0.0, 1.0, 0.1, 0.0])
    second = np.array([0.6, 0.2, 0.0, 0.4, 0.1])
    assert level_rates.worst_mean(first, second, 40) == pytest.approx((0.2 + 0.1) / 2)
    assert level_rates.worst_mean(first, second, 41) == pytest.approx((0.2 + 0.1 + 0.4) / 3)
    assert level_rates.worst_mean(first, second, 1) == pytest.approx(0.2)  # of equal ones the first
    assert level_rates.worst_mean(first, second, 100) == pytest.approx(second.mean())
    assert list(level_rates.worst_means(first, second)) == ["1", "2", "5", "10", "20", "50", "100"]
    with pytest.raises(ValueError, match="cannot be compared"):
        level_rates.worst_mean(first, second[:3], 10)


def test_levels_that_cannot_be_solved_are_left_out():
    chosen = level_rates.choose(DrawnCorridor(), 500, 3)
    assert chosen["level"].shape == (500,)
    assert set(chosen["level"]) == {1, 2, 3}
    np.testing.assert_array_equal(chosen["level"], level_rates.choose(DrawnCorridor(), 500, 3)["level"])
    # The first of more are the same.
    np.testing.assert_array_equal(chosen["level"][:20], level_rates.choose(DrawnCorridor(), 20, 3)["level"])
    assert (chosen["level"] != level_rates.choose(DrawnCorridor(), 500, 4)["level"]).any()


def test_a_pool_gives_different_levels():
    assert level_rates.choose(PooledCorridor(), 4, 0)["level"].tolist() == [0, 1, 2, 3]
    assert len(set(level_rates.choose(PooledCorridor(), 3, 0)["level"].tolist())) == 3
    with pytest.raises(ConfigError, match=r"`--levels` .=5. must be at most 4, all that test:Corridor has"):
        level_rates.choose(PooledCorridor(), 5, 0)
    with pytest.raises(ConfigError, match=r"`--levels` .=5. needs an environment with levels"):
        level_rates.choose(Corridor(), 5, 0)


def test_mazes_with_names_are_stacked():
    names, tasks = level_rates.with_names(envs.make("jaxrl:Maze"))
    assert len(names) == len(tasks["walls"]) == 8
    assert level_rates.with_names(Corridor()) == ((), None)


@pytest.mark.slow
def test_each_level_is_played_in_all_batches(monkeypatch):
    # An odd level succeeds whatever the policy does, an even one never.
    env = Corridor()
    agent = tiny_agent(env.spec, env__success="", network__core="none")
    state: Acting = jax.jit(agent.init)(jax.random.key(0))
    reports = EpisodeReports.of(env.spec)
    levels = np.arange(11) % 4
    for most in (4, 1024):
        monkeypatch.setattr(level_rates, "MAX_ENVIRONMENTS", most)
        solve_rates = level_rates.player(agent, VectorEnv(env), Topology.of(1), reports, 2, True)
        rates = solve_rates(state, {"level": levels.astype(np.int32)}, 0)
        np.testing.assert_array_equal(rates, levels % 2)


@pytest.mark.slow
def test_the_command_writes_rates_and_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = tmp_path / "run"
    save_run(run, env__name="jaxrl:Maze(max_steps=20)", network__core="none")
    asked = [str(run), "--levels=30", "--episodes=3", "--sample", "--cvar"]
    assert evaluate.main(["jaxrl evaluate", *asked]) == 0
    output = capsys.readouterr().out
    assert "levels      30, 3 episodes in each (sampled)" in output
    assert "spiral" in output
    (record,) = (run / "evaluations").glob("levels-*.json")
    found = json.loads(record.read_text())
    rates = {name: np.array(x) for name, x in found["rates"].items()}
    assert found["solve_rate"] == pytest.approx(rates["chosen_by"].mean())
    assert found["worst"]["10"] == level_rates.worst_mean(rates["chosen_by"], rates["scored"], 10)
    assert all(x in (0, 1 / 3, 2 / 3, 1) for x in rates["scored"].tolist())
    assert rates["scored"].shape == (30,)
    assert record.with_suffix(".png").stat().st_size > 5000
    assert found["named"].keys() == envs.make("jaxrl:Maze").named_tasks.keys()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--cvar"], "`--cvar` is about the worst of many levels: it needs `--levels`"),
        (["--levels=5", "--suite=cartpole"], "`--levels` excludes `--suite` and `--video`"),
    ],
)
def test_flags_that_do_not_fit_are_refused(flags, text, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert text in refused(capsys, "evaluate", str(tmp_path), *flags)
