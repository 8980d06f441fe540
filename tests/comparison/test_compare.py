"""`jaxrl compare`: its numbers, its reports, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from jaxrl.commands.compare import main
from jaxrl.comparison import Options, compare_folders
from tests.commands.refusals import refused
from tests.comparison.run_folders import write_run

SLOW, FAST = (
    ([10.0, 20.0, 30.0], [10.0, 40.0, 40.0], [10.0, 10.0, 20.0]),
    ([10.0, 50.0, 40.0], [30.0, 50.0, 60.0]),
)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for rate, curves, pace in ((0.1, SLOW, 5000), (0.2, FAST, 10_000)):
        for seed, returns in enumerate(curves):
            write_run(tmp_path / "runs" / f"{rate}" / f"{seed}", returns, seed, rate=rate, pace=pace)
    return tmp_path / "runs"


def compare(*arguments: object) -> int:
    return main(["jaxrl compare", *map(str, arguments)])


def result(out: Path, *arguments: object) -> dict[str, Any]:
    assert compare(*arguments, f"--output={out}", "--resamples=200") == 0
    return json.loads((out / "compare.json").read_text())


@pytest.mark.slow
def test_numbers(runs: Path, tmp_path: Path) -> None:
    found = result(tmp_path / "out", runs, "--threshold=40")
    slow, fast = found["outcomes"]
    assert (slow["name"], fast["name"]) == ("learning_rate=0.1", "learning_rate=0.2")
    assert (slow["final"]["value"], slow["best"]["value"]) == (30.0, pytest.approx(30.0))
    assert (fast["final"]["value"], fast["best"]["value"]) == (50.0, 55.0)
    assert slow["final"]["low"] < 30.0 < slow["final"]["high"]
    # Of six pairs five are better and one, 40 against 40, is a tie.
    assert fast["improvement"]["value"] == pytest.approx(5.5 / 6)
    assert slow["improvement"] is None
    assert (slow["reached"], slow["steps_to_threshold"]) == (1, None)  # 2,000, never, never
    assert (fast["reached"], fast["steps_to_threshold"], fast["seconds_to_threshold"]) == (2, 2000, 2.0)
    assert (fast["steps_per_second"], fast["speedup"]) == (10_000, 2.0)
    assert (fast["peak_host_bytes"], fast["peak_device_bytes"]) == (3e8, None)
    assert fast["curve"]["x"] == [1000, 2000, 3000]
    assert fast["curve"]["value"] == [20.0, 50.0, 50.0]
    assert len(fast["curve"]["low"]) == 3
    assert (fast["profile"]["value"][0], fast["profile"]["value"][-1]) == (1.0, 0.0)


@pytest.mark.slow
def test_members_of_a_population_have_the_pace_of_their_program(tmp_path: Path) -> None:
    write_run(tmp_path / "alone", [0.0, 50.0], rate=0.1, pace=5_000)
    for member in range(4):
        folder = tmp_path / "population" / "members" / str(member)
        write_run(folder, [0.0, 50.0], member, rate=0.2, pace=3_000)
    alone, members = result(tmp_path / "out", tmp_path / "alone", tmp_path / "population")["outcomes"]
    assert len(members["runs"]) == 4
    assert (alone["steps_per_second"], members["steps_per_second"]) == (5_000, 12_000)
    assert members["speedup"] == pytest.approx(2.4)
    # Members that had ended left the devices to the others: together they were slower than by four such.
    (tmp_path / "population/summary.json").write_text('{"steps_per_second": 8000}')
    (members,) = result(tmp_path / "out", tmp_path / "population")["outcomes"]
    assert members["steps_per_second_range"] == [8_000, 8_000]


@pytest.mark.slow
def test_threshold_and_baseline_by_default(runs: Path, tmp_path: Path) -> None:
    found = result(tmp_path / "out", runs)
    assert found["baseline"] == "learning_rate=0.1"
    assert found["threshold"] == pytest.approx(10 + 0.9 * (50 - 10))
    other = result(tmp_path / "out", runs, "--baseline=learning_rate=0.2", "--metric=episode/return")
    assert other["outcomes"][0]["speedup"] == 0.5
    assert other["outcomes"][0]["final"]["value"] == 15.0


@pytest.mark.slow
def test_pooled_environments_are_scaled(tmp_path: Path) -> None:
    for rate, last in ((0.1, 50.0), (0.2, 100.0)):
        write_run(tmp_path / f"{rate}" / "cartpole", [0.0, last], rate=rate)
        write_run(tmp_path / f"{rate}" / "acrobot", [-500.0, -last], rate=rate, env="gymnax:Acrobot-v1")
    found = result(tmp_path / "out", tmp_path, "--pool")
    assert found["scales"] == {"gymnax:Acrobot-v1": [-500, -50], "gymnax:CartPole-v1": [0, 100]}
    first, second = found["outcomes"]
    assert first["final"] == {"value": pytest.approx((1.0 + 0.5) / 2), "low": None, "high": None}
    assert second["final"]["value"] == pytest.approx((400 / 450 + 1.0) / 2)
    assert second["improvement"]["value"] == 0.5  # better in one, worse in the other


@pytest.fixture
def pair(tmp_path: Path) -> dict[str, Path]:
    runs = {"sequential": 1000, "parallel": 3000}
    return {name: write_run(tmp_path / name, [1.0, 2.0], pace=pace) for name, pace in runs.items()}


@pytest.mark.slow
def test_pair_says_how_much_faster_the_parallel_run_is(
    pair: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = result(tmp_path / "out", *(f"--{name}={folder}" for name, folder in pair.items()))
    assert [outcome["name"] for outcome in found["outcomes"]] == ["sequential", "parallel"]
    assert found["baseline"] == "sequential"
    assert [outcome["speedup"] for outcome in found["outcomes"]] == [1.0, 3.0]
    assert [(outcome["steps"], outcome["seconds"]) for outcome in found["outcomes"]] == [(2000, 2.0)] * 2
    assert "2,000 in 2 s" in capsys.readouterr().out
    picture = tmp_path / "pair.png"
    assert compare(*(f"--{name}={folder}" for name, folder in pair.items()), f"--output={picture}") == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_curves_of_runs_that_evaluate_once_are_those_of_training(tmp_path: Path) -> None:
    names = ("sequential", "parallel")
    for i, name in enumerate(names):
        write_run(tmp_path / name, [10.0 + i, 20.0 + i], evaluated_once=True)
    out = tmp_path / "out"
    found = result(out, *(f"--{name}={tmp_path / name}" for name in names))
    assert (found["metric"], found["drawn"]) == ("eval/return", "episode/return")
    first, second = found["outcomes"]
    # Half of the evaluations, see `write_run`.
    assert (second["curve"]["x"], second["curve"]["value"]) == ([1000, 2000], [5.5, 10.5])
    assert (first["final"]["value"], second["final"]["value"]) == (20.0, 21.0)
    # One run against one says nothing of the chance that another wins, and has no spread to draw.
    assert second["improvement"] is None
    report = (out / "report.md").read_text()
    assert re.findall(r"\]\((\w+)\.png\)", report) == ["curves"]
    assert "| parallel | 1 | 21.00 | 21.00 | - |" in report
    assert "Each run has a single eval/return; the learning curves are of episode/return" in report


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sequential={sequential}"], "`--sequential` and `--parallel` name a run each"),
        (["--sequential={sequential}", "--parallel={parallel}", "{parallel}"], "name a run each, without"),
        (
            ["--sequential={sequential}", "--parallel={other}"],
            "updates differ: ppo.learning_rate is 0.001 and 0.3",
        ),
        (["--sequential={sequential}", "--parallel={gamma}"], "updates differ: ppo.gamma is "),
        (["--sequential={sequential}", "--parallel={envs}"], "updates differ: env.num_envs is 10 and 20"),
        (
            ["--sequential={sequential}", "--parallel={rollout}"],
            "updates differ: ppo.rollout_length is 10 and 20",
        ),
        (["--sequential={sequential}", "--parallel={both}"], "must hold one run, not 2"),
    ],
)
def test_pair_that_says_nothing_of_pace_is_refused(
    arguments: list[str],
    message: str,
    pair: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_run(tmp_path / "both" / "0", [1.0, 2.0])
    write_run(tmp_path / "both" / "1", [1.0, 2.0], seed=1)
    other = write_run(tmp_path / "other", [1.0, 2.0], rate=0.3)
    places = {**pair, "other": other, "both": tmp_path / "both"}
    changes = {
        "gamma": {"ppo__gamma": 0.5},
        "envs": {"env__num_envs": 20},
        "rollout": {"ppo__rollout_length": 20},
    }
    places |= {name: write_run(tmp_path / name, [1.0, 2.0], **change) for name, change in changes.items()}
    assert message in refused(capsys, "compare", *(argument.format(**places) for argument in arguments))


@pytest.mark.slow
def test_reports(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert compare(runs, f"--output={out}", "--resamples=100") == 0
    assert "learning_rate=0.2     2  50.00 [40.00, 60.00]" in capsys.readouterr().out
    page = (out / "report.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 3
    # One file: nothing is loaded from anywhere.
    assert not re.search(r"""(src|href)=["'](?!data:)|url\(|@import|<script""", page)
    assert "50.00 [40.00, 60.00]" in page
    text = (out / "report.md").read_text()
    assert "| learning\\_rate=0.2 | 2 | 50.00 [40.00, 60.00] |" in text
    for picture in re.findall(r"\]\((\w+\.png)\)", text):
        assert (out / picture).read_bytes().startswith(b"\x89PNG")
    assert (out / "report.pdf").read_bytes().startswith(b"%PDF")


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    write_run(tmp_path / "<img src=x> | [bold]" / "0", [1.0, 2.0])
    out = tmp_path / "out"
    assert compare(tmp_path / "<img src=x> | [[]bold]", f"--output={out}", "--resamples=100") == 0
    assert "<img src=x>" not in (out / "report.html").read_text()
    assert "&lt;img src=x&gt; | [bold]" in (out / "report.html").read_text()
    assert "&lt;img src=x&gt; \\| [bold]/0" in (out / "report.md").read_text()


@pytest.mark.slow
def test_a_last_evaluation_that_is_not_finite_is_named(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    diverged = write_run(runs / "0.1" / "3", [10.0, 20.0, float("nan")], 3, rate=0.1)
    found = result(tmp_path / "out", runs)
    line = f"left out: eval/return of {diverged} at step 3,000 is not finite: step 2,000 counts as its end"
    assert f"warning: {line}" in " ".join(capsys.readouterr().out.split())
    assert any(line in skipped for skipped in found["skipped"])
    assert "at step 3,000 is not finite" in (tmp_path / "out" / "report.html").read_text()


def test_episodes_without_an_end_are_named(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", [10_000.0], evaluated_once=True)
    options = Options(resamples=10)
    assert compare_folders([str(path)], options).skipped == []
    summary = json.loads((path / "summary.json").read_text())
    (path / "summary.json").write_text(json.dumps({**summary, "eval_cut_off": 3, "eval_episodes": 4}))
    (said,) = compare_folders([str(path)], options).skipped
    assert said == f"3 of 4 episodes of the last evaluation of {path} were cut off: they had no end"


@pytest.mark.slow
def test_crashed_runs_are_left_out(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crashed = write_run(runs / "0.1" / "3", [10.0, 20.0, 30.0], 3, rate=0.1, finished=False)
    early = write_run(runs / "0.1" / "4", [10.0], 4, rate=0.1, finished=False)
    (early / "metrics.jsonl").write_text("")
    damaged = write_run(runs / "0.1" / "5", [1.0, 2.0, 3.0], 5, rate=0.1)
    (damaged / "config.json").write_text("{")
    rows = (crashed / "metrics.jsonl").read_text().splitlines(keepends=True)
    (crashed / "metrics.jsonl").write_text("".join(rows[:4]))  # the last evaluation was never made
    found = result(tmp_path / "out", runs)
    assert [len(outcome["runs"]) for outcome in found["outcomes"]] == [3, 2]
    assert found["problems"] == []
    said = capsys.readouterr().out
    for path, why in ((crashed, "is not finished: 2,000 of 3,000 steps"), (early, "has no metrics")):
        assert f"{path} {why}" in said
        assert any(f"{path} {why}" in line for line in found["skipped"])
    assert f"{damaged}/config.json is damaged" in said
    assert said.count("warning: left out: ") == 3
    assert f"{crashed} is not finished" in (tmp_path / "out" / "report.html").read_text()
    # By force what there is of a run counts.
    assert compare(runs, "--force", "--resamples=100") == 0
    said = capsys.readouterr().out
    assert said.count("warning: left out: ") == 2
    assert "\nlearning_rate=0.1     4  " in said


@pytest.mark.slow
def test_refuses_what_does_not_compare(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(runs / "other", [1.0, 2.0, 3.0], env="gymnax:Acrobot-v1")
    out = tmp_path / "out"
    assert compare(runs, f"--output={out}") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "not comparable: the environments differ: gymnax:Acrobot-v1, gymnax:CartPole-v1" in line
    assert "--force" in line
    assert not out.exists()
    found = result(out, runs, "--force")
    assert found["problems"] == ["the environments differ: gymnax:Acrobot-v1, gymnax:CartPole-v1"]
    assert "the environments differ" in (out / "report.html").read_text()
    assert "the environments differ" in (out / "report.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no run is named"),
        (["nowhere"], "`RUN` (='nowhere') is no run folder and holds none"),
        (["{runs}", "--metric=eval/retrun"], "did you mean `eval/return`?"),
        (["{runs}", "--baseline=learning_rate=0.3"], "is no variant; did you mean `learning_rate=0."),
        (["{runs}", "--resamples=5"], "resamples"),
        (["{runs}", "--outptu=x"], "outptu"),
        (["{runs}", "--output={runs}/0.1/0/config.json"], "is a file"),
        (["{empty}", "{damaged}"], "there is no run to compare: left out: the run "),
    ],
)
def test_bad_input(
    runs: Path, tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged, empty = write_run(tmp_path / "damaged", [1.0], 3), write_run(tmp_path / "empty", [1.0])
    (damaged / "config.json").write_text("{")
    (empty / "metrics.jsonl").write_text('{"step": 5, "ti')
    places = {"runs": runs, "damaged": damaged, "empty": empty}
    assert compare(*(argument.format(**places) for argument in arguments)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line
