"""Importance against landscapes that are known, and the report of a search."""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path

import numpy as np
import pytest

from jaxrl.config import ConfigError
from jaxrl.config.files import load_config
from jaxrl.runs.executor import RunNames
from jaxrl.runs.signals import Interruption
from jaxrl.search import SearchOptions, optimization, search_report
from jaxrl.search.search_folder import SearchFolder
from jaxrl.search.search_report import importance, write
from jaxrl.search.space import Space
from jaxrl.search.trials import DONE, FAILED, PRUNED, Objective, StudyTrial, Task
from jaxrl.search.winner import Verified

SPACE = Space.parse(
    {
        "ppo.learning_rate": {"log": [1e-5, 1e-1]},
        "ppo.gamma": {"uniform": [0.9, 1.0]},
        "network.core": {"choice": ["lstm", "gru", "none"]},
        "network.hidden_sizes": {"choice": [[64], [32, 32]]},
    }
)


def trials(count: int) -> list[StudyTrial]:
    """The rate decides most, in a peak; the core something; the rest nothing."""
    rng, found = np.random.default_rng(0), []
    for number in range(count):
        values = SPACE.at(rng.random(4))
        score = -((math.log10(values["ppo.learning_rate"]) + 3) ** 2) + (values["network.core"] == "gru")
        found.append(StudyTrial(number, values, DONE, score + 0.1 * rng.normal(), 1.0 + rng.random()))
    return found


def test_importance_finds_what_decides() -> None:
    found = importance(SPACE, trials(200), Objective())
    assert list(found)[:2] == ["ppo.learning_rate", "network.core"]
    assert found["ppo.learning_rate"] > 0.6
    assert 0.05 < found["network.core"] < 0.3
    assert max(found["ppo.gamma"], found["network.hidden_sizes"]) < 0.05
    assert importance(SPACE, trials(7), Objective()) == {}


@pytest.mark.slow
@pytest.mark.parametrize("count", [8, 20, 60])
def test_importance_is_nothing_on_noise(count: int) -> None:
    rng, shown = np.random.default_rng(1), 0
    for _ in range(20):
        made = [StudyTrial(n, SPACE.at(rng.random(4)), DONE, rng.normal()) for n in range(count)]
        shown += any(importance(SPACE, made, Objective()).values())
    assert shown <= 4  # one of twenty on average


def test_importance_is_one_minus_the_variance_within() -> None:
    # Two groups of four: the ranks 0 to 3 and 4 to 7. Within 2 * 5 over 8 - 2, all 42 over 7: 1 - (10/6) / 6.
    space = Space.parse({"network.hidden_sizes": {"choice": [[1], [2]]}})
    states = [PRUNED] + [DONE] * 7  # Trials that were stopped early count with what they had reached.
    made = [
        StudyTrial(n, {"network.hidden_sizes": (1 + n // 4,)}, state, float(n))
        for n, state in enumerate(states)
    ]
    assert importance(space, made, Objective())["network.hidden_sizes"] == pytest.approx(1 - (10 / 6) / 6)


@pytest.mark.parametrize(("seconds", "scale"), [((1.82, 1.86), "linear"), ((2.0, 60.0), "log")])
def test_seconds_that_are_close_have_an_axis_without_powers(seconds: tuple[float, ...], scale: str) -> None:
    pytest.importorskip("matplotlib")
    made = [StudyTrial(n, {}, DONE, float(n), x) for n, x in enumerate(seconds)]
    assert search_report.seconds_front(made, made, Objective()).axes[0].get_xscale() == scale


def test_the_line_of_the_best_goes_forward_when_trials_end_in_another_order() -> None:
    pytest.importorskip("matplotlib")
    made = [StudyTrial(n, {}, DONE, score) for n, score in ((0, 1.0), (3, 4.0), (2, 3.0), (1, 0.0))]
    (line,) = search_report.history(made, Objective()).axes[0].lines
    assert list(line.get_xdata()) == [0, 1, 2, 3]
    assert list(line.get_ydata()) == [1.0, 1.0, 3.0, 4.0]


def test_the_winner_and_the_axes_of_the_parallel_coordinates() -> None:
    pytest.importorskip("matplotlib")
    space = Space.parse(
        {"env.num_envs": {"choice": [64, 8, 16]}, "network.core": {"choice": ["lstm", "gru"]}}
    )
    made = [
        StudyTrial(n, {"env.num_envs": envs, "network.core": core}, DONE, score)
        for n, (envs, core, score) in enumerate([(64, "lstm", 3.0), (8, "gru", 2.0), (16, "lstm", 1.0)])
    ]
    drawn = search_report.parallel_coordinates(space, made, Objective(), made[1])
    (ax,) = drawn.axes
    lines = [line for line in ax.get_lines() if len(line.get_xdata()) == 3]
    (thick,) = [line for line in lines if line.get_linewidth() == 2.0]
    assert list(thick.get_ydata()) == [0.0, 1.0, 0.5]
    # Numbers in their order, names in that of the space.
    heights = {text.get_text(): text.xy for text in ax.texts}
    assert [heights[x] for x in ("8", "16", "64")] == [(0, 0.0), (0, 0.5), (0, 1.0)]
    assert [heights[x] for x in ("lstm", "gru")] == [(1, 0.0), (1, 1.0)]


@pytest.mark.slow
def test_report_shows_trials_and_figures(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    found = [*trials(12), StudyTrial(12, SPACE.at([0.5] * 4), FAILED, reason="<b>a NaN</b> in it")]
    task = Task(load_config("ppo_mlp"), SPACE, SearchOptions())
    # With fresh seeds the second is better than the first.
    best = Verified(task.objective.rank(found)[1], (101, 102), (3.0, None))
    path = write(found, [best], task, SearchFolder(str(tmp_path)))
    page = Path(path).read_text()
    assert "13 trials on gymnax:CartPole-v1 (12 done, 1 failed)" in page
    assert "&lt;b&gt;a NaN&lt;/b&gt; in it" in page
    assert "not reached with 2 fresh seeds (3.000, failed)" in page
    assert re.findall(r"(\d+), the winner", page) == [str(best.trial.number)]
    assert page.count("data:image/svg+xml;base64,") == 4
    assert "jaxrl search, version" in page
    for name in ("importance.png", "parallel_coordinates.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    # Few trials, of which none reached its end.
    write(found[-1:], [], task, SearchFolder(str(tmp_path)))
    assert "needs at least 8 trials with a score" in Path(path).read_text()


def test_report_without_the_extra_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: (name != "matplotlib" and find_spec(name)) or None
    )
    task = Task(load_config("ppo_mlp"), SPACE, SearchOptions())
    with pytest.raises(ConfigError, match="needs the `search` extra: .*pip install"):
        write(trials(3), [], task, SearchFolder(str(tmp_path)))
    assert not (tmp_path / "report.html").exists()


def test_a_search_says_before_its_trials_that_there_will_be_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Stop(Exception):
        pass

    def missing(extra: str) -> None:
        raise ConfigError(f"the report needs the `{extra}` extra")

    def no_trials(*_: object) -> None:
        raise Stop

    monkeypatch.setattr(optimization, "require_packages", missing)
    monkeypatch.setattr(optimization, "_executor", no_trials)
    monkeypatch.setattr(optimization, "require_trainable", lambda *_: RunNames((), (), ()))
    config = load_config("ppo_mlp")
    options = SearchOptions(method="random", trials=2, workdir=str(tmp_path / "search"))
    with pytest.raises(Stop):
        optimization.search(config, SPACE, options, Interruption())
    said = capsys.readouterr()
    assert "there will be no report: the report needs the `search` extra" in said.out + said.err
