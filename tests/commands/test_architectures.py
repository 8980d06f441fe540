"""`jaxrl architectures`: its table, its file, and the architectures that it leaves out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import jaxrl
from jaxrl.commands.architectures import main
from jaxrl.config import resolve
from jaxrl.evaluation.policy_function import PolicyFunction
from tests.commands.refusals import refused

CARTPOLE = ("--env=gymnax:CartPole-v1", "--config.env.num_envs=4", "--config.ppo.rollout_length=8")
# 4 numbers to 256 and 256 units, then 2 logits and a value: the weights of each layer and its biases.
WEIGHTS = 4 * 256 + 256 * 256 + 256 * 2 + 256
BIASES = 256 + 256 + 2 + 1


@pytest.mark.slow
def test_operations_of_a_convolution_are_those_of_its_definition() -> None:
    """MinAtar's: 8 x 8 results of 3 x 3 x 4 products in 16 channels, then 16, and 3 logits and a value."""
    config = jaxrl.default_config()
    config.env.name = "gymnax:Breakout-MinAtar"
    config.network.update(core="none", encoder="minatar", hidden_sizes=(16,))
    flops = PolicyFunction.untrained(resolve(config, 1)).forward_flops()
    products = 2 * (8 * 8 * 16 * 3 * 3 * 4 + 8 * 8 * 16 * 16 + 16 * 4)
    # And less than 2% for biases and activations.
    assert products <= flops < 1.02 * products


@pytest.mark.slow
def test_table_and_file_have_the_same_figures(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    given = [*CARTPOLE, "--seconds=0.001", f"--output={file}"]
    assert main(["jaxrl architectures", *given]) == 0
    out, err = capfd.readouterr()
    assert "measuring mlp_baseline (1 of 1) ..." in err
    record = json.loads(file.read_text())
    assert record["environment"] == "gymnax:CartPole-v1"
    assert record["device"]["kind"]
    assert record["versions"]["jax"]
    (found,) = record["architectures"]
    assert (found["architecture"], found["sees"]) == ("mlp_baseline", ["state"])
    assert found["parameters"] == WEIGHTS + BIASES
    # A product and a sum for each weight, and less than 1% for biases and activations.
    assert 2 * WEIGHTS <= found["mflop_per_step"] * 1e6 < 1.02 * 2 * WEIGHTS
    assert found["mflop_per_update"] == 0
    assert found["p50_ms"] > 0
    assert found["steps_per_second"] > 0
    # Which there are is said at once, before any is measured.
    assert out.startswith("1 for gymnax:CartPole-v1: mlp_baseline\nleft out: ")
    row = next(line.split() for line in out.splitlines() if line.startswith("mlp_baseline"))
    rate = f"{found['steps_per_second']:,.0f}"
    assert row == ["mlp_baseline", "state", "67,843", "0.14", "0", f"{found['p50_ms']:.3f}", rate]
    # The state is all that CartPole shows; every other is named with the part that it lacks.
    assert {"gat", "gcn", "full_hgt", "impala", "nature"} <= record["others"].keys()
    for name, why in record["others"].items():
        assert f"left out: {name}: {why}" in out
    assert "ask the environment for graph" in record["others"]["gcn"]
    assert f"written to {file}" in out


@pytest.mark.slow
def test_no_seconds_train_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from jaxrl.diagnostics import architectures

    def refuse(*_: object) -> None:
        raise AssertionError("trained")

    monkeypatch.setattr(architectures, "training_cost", refuse)
    file = tmp_path / "figures.json"
    assert main(["jaxrl architectures", *CARTPOLE, "--seconds=0", f"--output={file}"]) == 0
    (found,) = json.loads(file.read_text())["architectures"]
    assert found["steps_per_second"] is None
    (heading,) = [line for line in capfd.readouterr().out.splitlines() if line.startswith("name ")]
    assert heading.split()[-1] == "steps/s"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seconds=-1"], "`--seconds` (=-1) must lie between"),
        (["--second=1"], "--second"),
        (["no_such_config"], "no_such_config"),
        (["--config.population.seeds=2"], "population"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capfd, "architectures", *arguments)
