"""From the command line to a run folder, and from there to an evaluation."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from jaxrl.algorithms.a2c import A2C
from jaxrl.algorithms.pqn import PQN
from jaxrl.commands import evaluate
from jaxrl.main import main
from tests import processes
from tests.commands.refusals import refused

ROOT = Path(__file__).parents[2]
STEPS = 8 * 16  # of one iteration
TINY = (
    "--config.env.num_envs=8",
    "--config.ppo.rollout_length=16",
    "--config.ppo.num_epochs=1",
    "--config.ppo.num_minibatches=2",
    "--config.network.hidden_sizes=8",
    "--config.network.core=none",
    "--config.env.stagger=false",
    "--config.num_devices=1",
    f"--config.stop.steps={6 * STEPS}",
    f"--config.log.every_steps={3 * STEPS}",
    f"--config.evaluate.every_steps={2 * STEPS}",
    "--config.evaluate.episodes=3",
    f"--config.checkpoint.every_steps={2 * STEPS}",
)
EVALUATION = {"episodes", "mean", "std", "low", "high", "mean_length", "std_length", "unfinished"}


class Run:
    """A folder that one small training run has filled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.arguments = [f"--config={ROOT / 'configs/ppo.py'}", f"--workdir={folder}", *TINY]
        self.trained = processes.run("-m", "jaxrl.main", *self.arguments, timeout=180)

    def evaluations(self) -> dict[str, Any]:
        return {f.stem: json.loads(f.read_text()) for f in (self.folder / "evaluations").glob("*.json")}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("cli") / "run")


def test_training_succeeds(run: Run) -> None:
    assert run.trained.returncode == 0, run.trained.stderr
    assert "Traceback" not in run.trained.stderr
    assert "compil" in run.trained.stdout  # a long compile says that it compiles
    assert "\nmlp 8, feed-forward, categorical; 8 environments; 1 x cpu\n" in run.trained.stdout
    # Commands to copy, which hold the folder, are not cut.
    lines = [line for line in run.trained.stdout.splitlines() if str(run.folder) not in line]
    assert max(map(len, lines)) < 80


def test_rows_say_how_long_an_iteration_takes(run: Run) -> None:
    rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    paces = [row for row in rows if "time/steps_per_second" in row]
    assert len(paces) == 2
    for row in paces:
        assert row["time/seconds_per_iteration"] == pytest.approx(STEPS / row["time/steps_per_second"])


def test_run_folder_is_complete(run: Run) -> None:
    names = {path.name for path in run.folder.iterdir()}
    assert names >= {
        "config.json",
        "metrics.jsonl",
        "train.log",
        "tensorboard",
        "checkpoints",
        "summary.json",
    }
    config = json.loads((run.folder / "config.json").read_text())
    assert config["network"]["core"] == "none"
    assert config["stop"]["steps"] == 6 * STEPS
    assert list((run.folder / "tensorboard").glob("events.out.tfevents.*"))
    assert (run.folder / "train.log").read_text().strip()


def test_summary_says_how_it_went(run: Run) -> None:
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary["steps"] == 6 * STEPS
    assert summary["stop_reason"] == "steps"
    assert summary["eval_return"] >= 1  # an episode of CartPole has at least one step
    assert summary["steps_per_second"] > 0
    assert 0 < summary["compile_seconds"] < summary["seconds"]
    assert summary["device"] == "1 x cpu"
    assert summary["peak_memory_bytes"]["host"] > 1e8  # jax alone takes more
    assert summary["peak_memory_bytes"]["device"] is None
    assert {"python", "jax", "flax", "optax"} <= summary["versions"].keys()


def test_logged_metrics_are_the_documented_ones(run: Run) -> None:
    rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    logged = set().union(*rows) - {"step", "time"}
    logged = {re.sub("^grad/norm/.*", "grad/norm/LAYER", name) for name in logged}
    # Each metric of evaluations is there in both modes as well.
    of_modes = {name for name in logged if re.match("eval/(greedy|sampled)/", name)}
    logged -= of_modes
    own = {name.removeprefix("eval/") for name in logged if name.startswith("eval/")}
    assert of_modes == {f"eval/{mode}/{name}" for mode in ("greedy", "sampled") for name in own}
    documented = set(re.findall(r"^\| `([\w/]+)` \|", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE))
    # Only where updates may be dropped is it said how many were (tests/training/test_nonfinite.py); CPUs
    # tell nothing of devices, and only environments on the host wait (tests/programs/test_host_training.py).
    elsewhere = {"ppo/skipped", "device/peak_memory_bytes", "device/utilization"}
    elsewhere |= {"time/environments", "time/inference", "time/rollout_wait"}
    # This environment tells nothing of itself (tests/experience/test_statistics.py).
    elsewhere |= {"env/NAME", "env/success_rate", "eval/env/NAME", "eval/success_rate"}
    # Of a curriculum (tests/experience/curriculum/test_stage_sampler.py).
    curriculum = ("stage", "steps", "episodes", "success_rate", "collisions", "earlier_success_rate")
    elsewhere |= {f"curriculum/{name}" for name in curriculum}
    # Of stages of training, and of several tasks in one policy (tests/training/test_training_stages.py,
    # tests/experience/test_mixture.py).
    elsewhere |= {"stage", "task/NAME/return", "task/NAME/length", "eval/task/NAME/return"}
    elsewhere |= {"curriculum/weight/NAME"}  # tests/training/test_task_weights.py
    # Of levels by what can be learnt from them (tests/training/test_level_replay.py).
    levels = ("score", "staleness", "filled", "replayed", "edited", "new_success_rate", "learnability")
    elsewhere |= {f"levels/{name}" for name in (*levels, "refresh_steps")}
    # Of games of two (tests/training/test_selfplay.py).
    elsewhere |= {f"selfplay/{name}" for name in ("win_rate", "draw_rate", "elo", "pool")}
    # Of environments without an end (tests/evaluation/test_evaluation.py).
    elsewhere |= {"eval/cut_off"}
    # Of a suite (tests/evaluation/test_during_training.py).
    suite = ("success_rate", "efficiency", "safety", "cost", "steps", "return")
    elsewhere |= {f"eval/CATEGORY/{name}" for name in suite}
    # Of a loss of one's own (tests/e2e/test_examples.py), and of the other algorithms.
    elsewhere |= {"loss/auxiliary"}
    # With a teacher (tests/algorithms/ppo/test_teacher.py).
    elsewhere |= {"ppo/teacher_kl", "ppo/teacher_coef"}
    elsewhere |= {"ppo/entropy_coef"}  # tests/algorithms/ppo/test_entropy_schedule.py
    for other in (A2C, PQN):
        own = {f"{other.name}/{counted}" for counted in ("learning_rate", "updates", "skipped")}
        elsewhere |= {*other.reported, *other.own_metrics, *own}
    elsewhere |= {f"{name}/{x}" for name in ("dqn", "r2d2") for x in ("q", "epsilon")}
    elsewhere |= {f"sac/{name}" for name in ("q", "entropy", "temperature")}
    elsewhere |= {f"{name}/{x}" for name in ("dqn", "r2d2", "sac") for x in ("updates", "transitions")}
    cloning = ("accuracy", "absolute_error", "learning_rate", "waited", "stopped", "updates")
    elsewhere |= {f"behavior_cloning/{name}" for name in cloning}
    guided = ("accuracy", "absolute_error", "log_prob", "reward", "beta", "updates")
    elsewhere |= {f"dagger/{name}" for name in guided}
    # Of several seeds together (tests/reporting/writers/test_population_rows.py).
    parts = [f"{name}_{part}" for name in ("return", "eval") for part in ("lower", "upper", "best")]
    elsewhere |= {f"population/{name}" for name in (*parts, "training")}
    assert logged | elsewhere == documented
    assert logged >= set(
        "steps episode/return episode/length episode/count time/steps_per_second time/compile_seconds "
        "loss/policy loss/value loss/entropy ppo/approx_kl ppo/clip_fraction ppo/explained_variance "
        "ppo/learning_rate grad/norm eval/return".split()
    )
    assert [row["steps"] for row in rows if "loss/policy" in row][-1] == 6 * STEPS
    assert [row["step"] for row in rows if "eval/return" in row] == [2 * STEPS, 4 * STEPS, 6 * STEPS]


@pytest.mark.slow
def test_evaluation_prints_and_writes(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert (
        evaluate.main(["jaxrl evaluate", f"--workdir={run.folder}", "--episodes=5", "--checkpoint=latest"])
        == 0
    )
    output = capfd.readouterr().out
    for mode in ("greedy", "sampled"):
        written = run.evaluations()[f"step-{6 * STEPS}-{mode}-5-seed-0"]
        assert written.keys() >= EVALUATION
        assert (written["episodes"], written["mode"]) == (5, mode)
        assert f"episodes    5, {mode}\nreturn      {written['mean']:.2f}" in output
    assert "95% confidence" in output


@pytest.mark.slow
def test_evaluation_samples_from_the_best_checkpoint(run: Run) -> None:
    rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    returns = {row["step"]: row["eval/return"] for row in rows if "eval/return" in row}
    best = max(returns, key=lambda step: (returns[step], step))
    options = ["--episodes=3", "--sample"]
    assert evaluate.main(["jaxrl evaluate", f"--workdir={run.folder}", *options]) == 0
    written = run.evaluations()[f"step-{best}-sampled-3-seed-0"]
    assert (written["step"], written["mode"], written["episodes"]) == (best, "sampled", 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workdir=/nowhere/at/all"], "is no folder"),
        (["--checkpoint=newest"], "`--checkpoint` (='newest') must be best, latest or a step"),
        (["--checkpoint=12345"], "no checkpoint of step 12345"),
        (["--episodes=0"], "episodes"),
    ],
)
def test_evaluation_answers_bad_input_with_one_line(
    run: Run, arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capfd, "evaluate", f"--workdir={run.folder}", *arguments)


def test_same_command_again_has_nothing_to_do(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    metrics = (run.folder / "metrics.jsonl").read_text()
    summary = json.loads((run.folder / "summary.json").read_text())
    assert main(["jaxrl train", *run.arguments]) == 0
    assert "nothing to do" in "".join(capfd.readouterr())
    assert (run.folder / "metrics.jsonl").read_text() == metrics
    assert json.loads((run.folder / "summary.json").read_text()) == summary
