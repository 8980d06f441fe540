"""The benchmark of acting: what it measures, for which networks, and where it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import jaxrl
from jaxrl.algorithms.suitable_networks import suitable_networks
from jaxrl.commands.inference_benchmark import main
from jaxrl.config import resolve
from jaxrl.envs import registry
from tests.commands.refusals import refused
from tests.inference.runs import save_run

MATRICES = ("gated_delta", "linear_attention", "mamba2", "mlstm")


@pytest.mark.slow
def test_every_batch_size_of_a_run_is_measured(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    save_run(tmp_path, env__name="jaxrl:ProbeMask", normalize__observations=True)
    arguments = [f"--workdir={tmp_path}", "--batch=1,16", "--seconds=0.01"]
    assert main(["jaxrl inference-benchmark", *arguments]) == 0, capfd.readouterr().err
    record = json.loads((tmp_path / "inference_benchmark.json").read_text())
    assert record["device"]["platform"] == "cpu"
    assert record["versions"]["jax"]
    one, many = record["results"]
    assert (one["batch"], many["batch"], one["core"]) == (1, 16, "lstm")
    for row in (one, many):
        assert row["calls"] >= 200
        assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"]
    # More rows in one call are cheaper than one by one.
    assert many["throughput"] > one["throughput"]
    assert f"{one['parameters']:,}" in capfd.readouterr().out


def test_all_architectures_that_fit() -> None:
    config = resolve(jaxrl.default_config(), 1).network
    names = {
        "gymnax:CartPole-v1": {"mlp", "identity", "mlp_baseline"},
        # The architecture `impala` is the encoder of that name and a layer more.
        "gymnax:Breakout-MinAtar": {"mlp", "identity", "minatar", "impala"},
        "jaxrl:ProbeDict": {"auto", "mlp_baseline", "impala"},
    }
    for env, encoders in names.items():
        spec = registry.make(env).spec
        found = list(suitable_networks(config, spec))
        assert {(n.architecture or n.encoder, n.core) for n in found} == {
            (e, c)
            for e in encoders
            for c in ("lstm", "gru", "mingru", "lru", "s5", "gtrxl", "ffm", "slstm", "none", *MATRICES)
        }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "`--config` is missing"),
        (["--config=configs/ppo.py", "--batch=1,x"], "`--batch` (='1,x') must be positive integers"),
        (["--workdir=x", "--config=configs/ppo.py"], "is no flag of a run"),
        (["--workdir=does/not/exist"], "is no folder"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert said in refused(capfd, "inference-benchmark", *arguments)
