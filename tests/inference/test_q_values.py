"""A trained policy of Q-values in every command that lets a policy act; it has nothing to sample."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import jaxrl
from jaxrl.commands import evaluate, export, inference_benchmark, train

pytestmark = pytest.mark.slow

SUITE = """
name: small
episodes: 4
categories:
  as trained: [gymnax:CartPole-v1]
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Feed-forward, with layer normalisation and dueling heads."""
    folder = tmp_path_factory.mktemp("run")
    fields = {
        "algorithm": "pqn",
        "network.separate_value": False,
        "network.layer_norm": True,
        "network.hidden_sizes": (16,),
        "pqn.dueling": True,
        "stop.steps": 4096,
        "evaluate.every_steps": 0,
        "log.layers": False,
        "evaluate.episodes": 4,
    }
    flags = [f"--config.{name}={value}" for name, value in fields.items()]
    assert train.main(["jaxrl train", "ppo_mlp", f"--workdir={folder}", *flags]) == 0
    return folder


@pytest.mark.parametrize("kind", export.FORMATS)
def test_every_format_acts_as_the_trained_policy(run: Path, kind: str, tmp_path: Path) -> None:
    arguments = [f"--workdir={run}", f"--format={kind}", f"--output={tmp_path}", "--steps=60"]
    assert export.main(["jaxrl export", *arguments]) == 0
    description = json.loads((tmp_path / "policy.json").read_text())
    assert description["architecture"]["head"] == {"type": "dueling_q", "weights": "head"}
    assert description["outputs"]["distribution.q"]["shape"] == ["batch", 2]


def test_it_is_loaded_evaluated_and_timed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    action, _ = jaxrl.load(run).act(np.zeros((3, 4), np.float32))
    assert action.shape == (3,)
    assert evaluate.main(["jaxrl evaluate", f"--workdir={run}", "--episodes=4"]) == 0
    assert evaluate.main(["jaxrl evaluate", f"--workdir={run}", f"--suite={tmp_path / 'suite.yaml'}"]) == 0
    (report,) = (run / "evaluations").glob("suite-small-*.json")
    assert set(json.loads(report.read_text())["modes"]) == {"greedy"}
    arguments = [f"--workdir={run}", "--batch=1", "--seconds=0.01"]
    assert inference_benchmark.main(["jaxrl inference-benchmark", *arguments]) == 0


@pytest.mark.parametrize("command", ["evaluate", "suite", "export"])
def test_sampling_is_refused_in_one_line(
    command: str, run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    workdir = f"--workdir={run}"
    code = {
        "evaluate": lambda: evaluate.main(["jaxrl evaluate", workdir, "--sample"]),
        "suite": lambda: evaluate.main(
            ["jaxrl evaluate", workdir, "--sample", f"--suite={tmp_path / 'suite.yaml'}"]
        ),
        "export": lambda: export.main(
            ["jaxrl export", workdir, "--sample", "--format=stablehlo", f"--output={tmp_path}"]
        ),
    }[command]()
    assert code == 2
    (said,) = capfd.readouterr().err.splitlines()
    assert "`--sample`: this policy has nothing to sample" in said


def test_sampling_from_python_is_refused(run: Path) -> None:
    with pytest.raises(jaxrl.ConfigError, match="nothing to sample"):
        jaxrl.load(run).act(np.zeros(4), sample=True)
