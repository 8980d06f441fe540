"""A suite's numbers are right, its file is checked, and its films show the episodes."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from jaxrl.commands.evaluate import main
from jaxrl.config.errors import ConfigError
from jaxrl.envs import filming
from jaxrl.evaluation import evaluator, trained_policy
from jaxrl.evaluation.evaluator import EvaluationTask, Evaluator
from jaxrl.evaluation.suites import definition
from jaxrl.evaluation.suites.definition import Success
from jaxrl.evaluation.suites.levels import SuiteLevels, SuitePlayer
from tests.commands.refusals import refused
from tests.inference.runs import save_run

ROOT = Path(__file__).parents[3]
ENV = "tests.evaluation.suites.environments:Corridor"
ROOMS = "tests.evaluation.suites.environments:Rooms"
SMALL = {"network__core": "lstm", "network__hidden_sizes": (4,), "network__core_size": 4}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    save_run(folder, env__name=ENV, **SMALL)
    return folder


def suite_of(folder: Path, **fields: Any) -> Path:
    file = folder / "mine.yaml"
    file.write_text(yaml.safe_dump(fields))
    return file


def evaluate(run: Path, file: Path, *arguments: str) -> int:
    return main(["jaxrl evaluate", f"--workdir={run}", f"--suite={file}", "--trust", *arguments])


@pytest.mark.slow
def test_numbers_of_levels_categories_and_all(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = suite_of(
        tmp_path,
        episodes=3,
        success="info.goal",
        cost="cost",
        categories={
            "short": [f"{ENV}(length=5)"],
            "mixed": [
                {"env": f"{ENV}(length=10, hazards=4)", "steps": 5},
                {"env": f"{ENV}(length=20, reached=False)", "episodes": 1},
            ],
        },
    )
    assert evaluate(run, file) == 0, capfd.readouterr().err
    report = json.loads((run / "evaluations" / "suite-mine-step-7.json").read_text())
    assert report["modes"]["greedy"] == report["modes"]["sampled"]  # actions play no part
    short, mixed = (report["modes"]["greedy"]["categories"][name] for name in ("short", "mixed"))
    # Five of at most twenty steps: each success takes a quarter of the time.
    assert (short["success_rate"], short["steps_to_completion"], short["efficiency"]) == (1, 5, 4)
    assert (short["cost"], short["safety"], short["return_mean"]) == (0, 1, 5)
    assert mixed["episodes"] == 4
    assert mixed["success_rate"] == 3 / 4
    assert mixed["steps_to_completion"] == 10
    assert mixed["efficiency"] == pytest.approx((3 / 4) / ((2 + 2 + 2 + 1) / 4))
    assert (mixed["cost"], mixed["safety"]) == (3, 1 / 4)
    assert mixed["success_low"] < 3 / 4 < mixed["success_high"] < 1
    first, second = mixed["levels"]
    assert (first["cost"], second["cost"], second["steps_to_completion"]) == (4, 0, None)
    row = {"return": 10, "length": 10, "success": True, "cost": 4, "finished": True}
    assert first["episode_rows"] == [row] * 3
    assert [(row["length"], row["success"]) for row in second["episode_rows"]] == [(20, False)]
    everything = report["modes"]["greedy"]["all"]
    assert (everything["episodes"], everything["success_rate"]) == (7, 6 / 7)
    said = capfd.readouterr().out
    assert "75.0%" in said
    assert "sampled" in said


@pytest.mark.slow
def test_each_level_plays_episodes_of_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run, cartpole = tmp_path / "run", "gymnax:CartPole-v1"
    save_run(run, env__name=cartpole, **SMALL)
    file = suite_of(tmp_path, episodes=16, categories={"first": [cartpole, cartpole], "second": [cartpole]})
    assert evaluate(run, file, "--sample") == 0, capfd.readouterr().err
    report = json.loads((run / "evaluations" / "suite-mine-step-7.json").read_text())
    categories = next(iter(report["modes"].values()))["categories"]
    levels = [level for name in ("first", "second") for level in categories[name]["levels"]]
    played = {tuple(row["return"] for row in level["episode_rows"]) for level in levels}
    assert len(played) == 3


@pytest.mark.slow
def test_episodes_have_the_tasks_of_a_group_in_turn(run: Path, tmp_path: Path) -> None:
    """Levels that differ in their tasks alone share an evaluator, and that one program."""
    categories = {size: [{"env": ROOMS, "tasks": f"size={size}"}] for size in ("small", "large")}
    suite = definition.read(str(suite_of(tmp_path, episodes=5, categories=categories)))
    policy = trained_policy.load(str(run), trust=True)
    levels = SuiteLevels.of(suite, policy.spec, policy.config.env)
    built: list[Evaluator] = []

    def evaluator_of(task: EvaluationTask) -> Evaluator:
        built.append(evaluator.build(policy.config, task, policy.agent, policy.topology))
        return built[-1]

    player = SuitePlayer(levels, functools.cache(evaluator_of))
    (job,) = player.compile(policy.state, suite.modes)
    job()
    for played in player.play(policy.state, suite.modes).values():
        for size, rooms in (("small", [0, 1]), ("large", [2, 3])):
            (outcomes,) = played[size]
            lengths = [rooms[i % 2] + 1 for i in range(5)]
            assert outcomes.length.tolist() == lengths
            assert outcomes.score.tolist() == [2 * length for length in lengths]
    assert [len(each.compiled) for each in built] == [1]


def test_a_film_of_a_task() -> None:
    for room in (1, 3):
        shots = filming.film(ROOMS, (), 0, {"room": np.int32(room), "pay": np.float32(1)})
        shot, steps = next(shots), 0
        while not shot.over:
            shot, steps = shots.send(0), steps + 1
        assert steps == room + 1


@pytest.mark.slow
def test_options_of_the_command_overrule_the_suite(run: Path, tmp_path: Path) -> None:
    file = suite_of(tmp_path, name="few", episodes=50, success="return >= 10", categories={"a": [ENV]})
    assert evaluate(run, file, "--episodes=2", "--sample", "--seed=5") == 0
    report = json.loads((run / "evaluations" / "suite-few-step-7.json").read_text())
    assert [*report["modes"]] == ["sampled"]
    assert report["seed"] == 5
    assert report["modes"]["sampled"]["all"]["episodes"] == 2
    assert report["modes"]["sampled"]["all"]["cost"] is None


@pytest.mark.slow
def test_a_film_without_a_suite(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new" / "one.gif"
    arguments = ["jaxrl evaluate", f"--workdir={run}", "--trust", "--episodes=2", f"--video={file}"]
    environment = f"--environment={ENV}(length=6)"
    assert main([*arguments, environment]) == 0, capfd.readouterr().err
    assert f"video of 6 steps: {file}" in capfd.readouterr().out
    with Image.open(file) as film:
        assert film.n_frames == 7
    (written,) = (run / "evaluations").glob("step-7-greedy-2-*.json")
    written.unlink()
    # The film alone, without episodes before it.
    file.unlink()
    alone = [*arguments[:3], "--episodes=0", environment]
    assert main([*alone, f"--video={file}"]) == 0, capfd.readouterr().err
    assert capfd.readouterr().out.splitlines()[1].startswith(f"video of 6 steps: {file}")
    assert not [*(run / "evaluations").glob("step-7-greedy-*.json")]
    # Three of them: 7 pictures each, and between two the last one for half a second.
    assert main([*alone, f"--video={file}", "--video-episodes=3"]) == 0, capfd.readouterr().err
    assert f"video of 3 episodes, 18 steps: {file}" in capfd.readouterr().out
    with Image.open(file) as film:
        milliseconds = 0
        for frame in range(film.n_frames):
            film.seek(frame)
            milliseconds += film.info["duration"]
        assert milliseconds == 50 * (3 * 7 + 2 * 10)
    assert main([*arguments[:3], "--video-episodes=3"]) == 2
    assert "`--video-episodes` is about one video" in capfd.readouterr().err
    assert main(alone) == 2
    assert "`--episodes` (=0) must be at least 1" in capfd.readouterr().err
    # Without a picture there is no film, and that is an error; the result stays.
    file.unlink()
    assert main([*arguments, "--environment=tests.evaluation.suites.environments:Dark"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "no video was written: Corridor cannot be rendered" in line
    assert [*(run / "evaluations").glob("step-7-greedy-2-*.json")]
    assert not file.exists()


@pytest.mark.slow
def test_films_are_of_whole_episodes(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    levels = [f"{ENV}(length=6)", "tests.evaluation.suites.environments:Dark"]
    file = suite_of(tmp_path, episodes=1, categories={"a b": levels})
    assert evaluate(run, file, f"--video={tmp_path}/films") == 0, capfd.readouterr().err
    said = capfd.readouterr().out
    assert "video of 6 steps" in said
    assert "no video: Corridor cannot be rendered" in said
    with Image.open(tmp_path / "films" / "a-b-0-greedy.gif") as film:
        assert film.n_frames == 7
        film.seek(6)
        last = np.asarray(film.convert("L"))
    # Drawn eight times as large; twelve of forty columns are white at the end.
    assert last.shape == (160, 320)
    assert (last > 128).mean() == pytest.approx(12 / 40)


@pytest.mark.slow
def test_gymnax_gymnasium_and_envpool_are_filmed_or_say_why_not(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    save_run(tmp_path, env__name="gymnax:CartPole-v1", **SMALL)
    names = [
        "gymnax:CartPole-v1(max_steps_in_episode=4)",
        "gymnasium:CartPole-v1(max_episode_steps=4)",
        "envpool:CartPole-v1(max_episode_steps=4)",
    ]
    file = suite_of(tmp_path, episodes=2, success="length >= 4", categories={"pole": names})
    assert evaluate(tmp_path, file, f"--video={tmp_path}/films") == 0, capfd.readouterr().err
    said = capfd.readouterr().out
    assert said.count("video of 4 steps") == 2
    assert "no video: envpool:CartPole-v1(max_episode_steps=4) cannot be rendered" in said
    report = json.loads((tmp_path / "evaluations" / "suite-mine-step-7.json").read_text())
    assert report["modes"]["greedy"]["all"]["success_rate"] == 1
    for film in (tmp_path / "films").iterdir():
        with Image.open(film) as image:
            # CartPole's picture, white with a black cart, at half its size; and it moves.
            assert image.size == (320, 213)
            first = np.asarray(image.convert("L"), int)
            image.seek(image.n_frames - 1)
            assert np.abs(np.asarray(image.convert("L"), int) - first).max() > 100


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "must hold `categories`"),
        ({"categories": {"a": []}}, "`categories.a` must be a list of environments"),
        ({"categories": {"a": [{"wrappers": []}]}}, "`categories.a[0]`"),
        ({"categories": {"a": ["x:Y"]}, "episodes": 0}, "`episodes` (=0) must be at least 1"),
        ({"categories": {"a": ["x:Y"]}, "modes": ["best"]}, "`modes` (=['best']) must hold some of"),
        ({"categories": {"a": ["x:Y"]}, "name": "../../x"}, "`name` (='../../x') must be letters"),
        ({"categories": {"a": ["x:Y"]}, "succes": "x"}, "did you mean `success`"),
        ({"categories": {"a": [{"env": ENV, "success": "score > 3"}]}}, "`categories.a[0].success`"),
        ({"categories": {"a": [{"env": ENV, "success": "return > x"}]}}, "must compare with a number"),
        ({"categories": {"a": ["gymnax:CartPol-v1"]}}, "`categories.a[0].env` (='gymnax:CartPol-v1')"),
        ({"categories": {"a": ["gymnax:CartPole-v1"]}}, "has observations of float32[4], the policy"),
        ({"categories": {"a": [ENV]}, "cost": "damage"}, "no info['damage']; its info has cost, goal"),
        ({"categories": {"a": [ENV]}, "tasks": "size=small"}, f"{ENV} names no groups of tasks"),
        ({"categories": {"a": [ROOMS]}, "tasks": "size"}, "must be one of size=small, size=large"),
    ],
)  # fmt: skip
def test_bad_suites_are_one_line(
    run: Path, tmp_path: Path, fields: dict[str, Any], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(run, suite_of(tmp_path, **fields)) == 2
    stderr = capfd.readouterr().err
    assert said in stderr
    assert len(stderr.splitlines()) == 1


def test_bad_files_and_flags_are_one_line(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.yaml").write_text("categories: [")
    assert evaluate(run, tmp_path / "broken.yaml") == 2
    assert "must be YAML or JSON" in capfd.readouterr().err
    assert evaluate(run, tmp_path / "missing.yaml") == 2
    assert "cannot be read: No such file" in capfd.readouterr().err
    assert "must be a file that ends in .gif or .mp4; it is a folder with --suite" in refused(
        capfd, "evaluate", f"--workdir={run}", f"--video={tmp_path}"
    )


def test_rules() -> None:
    rule = Success.parse("info.some/score <= 2.5", "success")
    assert (rule.subject, rule.is_info, rule.bound) == ("some/score", True, 2.5)
    assert [bool(x) for x in rule.compare(np.array([2.5, 3]), rule.bound)] == [True, False]
    assert Success.parse("info.done", "success").compare(1, 0)
    with pytest.raises(ConfigError, match="must be a comparison"):
        Success.parse("return", "success")


def test_json_is_read_too_and_the_shipped_suite_is_valid(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"categories": {"x": ["jaxrl:ProbeMask"]}}))
    assert definition.read(str(tmp_path / "a.json")).categories["x"][0].episodes == 100
    for file in (ROOT / "configs" / "suites").iterdir():
        assert definition.read(str(file)).categories
