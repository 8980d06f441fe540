"""Flags of `jaxrl experiment`: their way to the configurations and the processes of cells."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxrl.algorithms import build_agent
from jaxrl.commands import experiment as command
from jaxrl.commands import prepare_data
from jaxrl.commands.experiment import main
from jaxrl.config import Config, ConfigError
from jaxrl.config.environment import spec_of
from jaxrl.config.fields import declarations
from jaxrl.diagnostics import architectures
from jaxrl.diagnostics.architectures import TrainingCost
from jaxrl.envs import registry
from jaxrl.evaluation.policy_function import PolicyFunction
from jaxrl.experience.demonstrations import DatasetFault, read_dataset
from jaxrl.experiments.cells import ExperimentPlan
from jaxrl.experiments.experiment_options import ExperimentOptions
from jaxrl.runs import child_process, executor, storage
from tests.experiments.test_experiment import REQUIRED as FIELDS
from tests.experiments.test_experiment import options

REQUIRED = {name.replace("_", "-") for name in FIELDS}
LEVELS = ("--experiment-name=x", "--train-dataset=train", "--test-dataset=test")
TWO = (*LEVELS, "--architectures", "gcn", "mlp_baseline")


def experiment(*arguments: str) -> int:
    return main(["jaxrl experiment", *arguments])


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The configurations whose training is measured; each makes 500 steps a second in 3 MiB."""
    found: list[Config] = []

    def measure(config: Config, seconds: float) -> TrainingCost:
        found.append(config)
        return TrainingCost(parameters=12_345, steps_per_second=500.0, memory=3 * 2**20)

    monkeypatch.setattr(architectures, "training_cost", measure)
    return found


@pytest.mark.slow
def test_a_dry_run_lists_the_cells_and_writes_nothing(
    measured: list[Config],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    checked: list[str] = []
    monkeypatch.setattr(storage, "open_url", lambda flag, url, writable: checked.append(url))
    monkeypatch.setattr(command, "_require_demonstrations", lambda folder, config: checked.append(folder))
    more = ("--replay-data-dir=demos", "--test-pretraining", "--seeds", "0", "1")
    assert experiment(*TWO, *more, "--total-timesteps=900000", "--dry-run", "--s3-bucket=b") == 0
    out, err = capfd.readouterr()
    lines = out.splitlines()
    assert lines[0] == "8 cells of gcn, mlp_baseline"
    modes = ("no_pretrain", "with_pretrain")
    cells = [f"  {a}/{m}/seed_{s}" for a in ("gcn", "mlp_baseline") for m in modes for s in (0, 1)]
    assert lines[1:9] == cells
    # 900,000 steps at 500 a second are half an hour; of each there are two seeds in two modes.
    assert [line.split() for line in lines[9:12]] == [
        ["architecture", "cells", "parameters", "memory", "hours"],
        ["gcn", "4", "12,345", "3.15", "MB", "2.00"],
        ["mlp_baseline", "4", "12,345", "3.15", "MB", "2.00"],
    ]
    assert lines[12].startswith("4.00 hours of training in all")
    assert err.splitlines() == ["measuring gcn (1 of 2) ...", "measuring mlp_baseline (2 of 2) ..."]
    assert (checked[0].rpartition("_")[0], checked[1:]) == ("s3://b/experiments/x", ["demos"])
    assert [config.network.architecture for config in measured] == ["gcn", "mlp_baseline"]
    assert list(tmp_path.iterdir()) == []


def test_what_a_cell_would_fail_at_is_found_before_the_first(
    measured: list[Config],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def unreachable(flag: str, url: str, writable: bool) -> None:
        raise ConfigError(f"`{flag}` (={url!r}) cannot be reached")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(storage, "open_url", unreachable)
    monkeypatch.setattr(executor, "visible_gpus", lambda: ["0", "1"])
    for given, why in {
        "--dry-run --num-gpus=4": "`--num-devices` (=4) is more than this machine has: GPUs 0, 1",
        "--num-devices=3": "`--num-devices` (=3) must divide `--num-envs` (=64)",
        "--s3-bucket=b": "`--s3-bucket` (='s3://b/experiments/x_",
        "--dry-run --replay-data-dir=none": "`--replay-data-dir`: none: is no folder of episodes; to record",
    }.items():
        assert experiment(*TWO, *given.split()) == 2
        out, err = capfd.readouterr()
        assert why in err
        assert err.count("\n") == 1
        # A dry run has named its cells before.
        assert out.splitlines()[:1] == ["2 cells of gcn, mlp_baseline"] * ("--dry-run" in given)
    assert measured == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_demonstrations_of_the_command_in_the_error_fit(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def error(folder: Path) -> str:
        given = (f"--replay-data-dir={folder}", f"--output-dir={tmp_path / 'out'}")
        assert experiment(*LEVELS, "--architectures=mlp_baseline", *given) == 2
        return capfd.readouterr().err

    # In another set of levels the number of a level, which is its graph, is another one.
    other = ("--env=jaxrl:Platformer(levels='test')", "--player=solver", "--episodes=2")
    assert prepare_data.main(["jaxrl prepare-data", *other, f"--output={tmp_path / 'other'}"]) == 0
    found = error(tmp_path / "other")
    assert f"{tmp_path / 'other'}: 000000.npz: was played in other levels than jaxrl:Platformer(" in found
    words = shlex.split(found.strip().partition("to record what fits: ")[2])
    words[words.index("--output=DIR")] = f"--output={tmp_path / 'own'}"
    assert prepare_data.main(["jaxrl prepare-data", *words[2:], "--episodes=2"]) == 0
    # So do those of the game as such, which show all its parts; others take of them what they see.
    plain = ("--env=jaxrl:Platformer", "--player=solver", "--episodes=2", f"--output={tmp_path / 'plain'}")
    assert prepare_data.main(["jaxrl prepare-data", *plain]) == 0
    cell = ExperimentPlan.of(options(), tmp_path).cells[0]
    config = ExperimentPlan.of(options(), tmp_path).config(cell, with_suite=False)
    for name in ("own", "plain"):
        command._require_demonstrations(str(tmp_path / name), config)
        whole, state = (
            read_dataset(str(tmp_path / name), registry.spec_of(env, ())).episodes[0].observations
            for env in (config.env.name, "jaxrl:Platformer")
        )
        np.testing.assert_array_equal(state, whole["state"])
    with pytest.raises(DatasetFault, match="has no array observations; it has observations.global, "):
        read_dataset(str(tmp_path / "own"), registry.spec_of("jaxrl:Platformer(observation='way')", ()))


@pytest.mark.long
def test_a_dry_run_measures_on_the_cpu_where_cells_train(tmp_path: Path) -> None:
    """Also where jax would otherwise look for a GPU, and end where there is none."""
    command = [sys.executable, "-m", "jaxrl", "experiment", *LEVELS, "--architectures=mlp_baseline"]
    done = subprocess.run(
        [*command, "--dry-run", "--num-gpus=0"],
        env=os.environ | {"JAX_PLATFORMS": "cuda", "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith("mlp_baseline"))
    assert row[2] == "126,727"
    assert float(row[-1]) > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_gpus_are_devices(measured: list[Config], tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    given = {"experiment-name": "x", "architectures": "gcn", "train-dataset": "train", "test-dataset": "test"}
    file.write_text(json.dumps(given | {"num-gpus": 4, "s3-bucket": None}))
    for arguments in ([str(file)], [str(file), "--num-devices=2"]):
        assert experiment(*arguments, "--dry-run") == 0
    assert [(config.num_devices, config.storage.sync_to) for config in measured] == [(4, ""), (2, "")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hardware-profile=a100"], "`hardware_profile` (='a100') must be one of auto"),
        (["--distributed-backend=nccl"], "`--distributed-backend`: JAX has one backend for distribution"),
        (["--num-gpus=-1"], "`num_devices` (=-1) must be at least 0"),
        (["--num-gpus=1", "--num-devices=2"], "`--num-gpus` and `--num-devices` are one option"),
        (
            ["--test-pretraining", "--no-pretraining", "--replay-data-dir=demos"],
            "`--test-pretraining` and `--no-pretraining` exclude each other: leave one out",
        ),
        (["--test-pretraining"], "`--test-pretraining` needs demonstrations: --replay-data-dir=DIR"),
        (["--resume-from={folder}"], "`--resume-from` continues with the stored options"),
    ],
)
def test_flags_that_are_refused_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = [argument.format(folder=tmp_path) for argument in arguments]
    assert experiment(*TWO, f"--output-dir={tmp_path}", *given) == 2
    stderr = capfd.readouterr().err
    assert message in stderr
    assert len(stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("distributed-backend: nccl", "JAX has one backend for distribution"),
        ("debug: 3", "x.yaml: `debug` (=3) must be true or false"),
        ("num-gpu: 3", "x.yaml: unknown option `num_gpu`; the nearest is"),
    ],
)
def test_a_file_is_answered_by_its_name(
    lines: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.yaml").write_text(lines)
    assert experiment(*TWO, "--dry-run", str(tmp_path / "x.yaml")) == 2
    assert message in capfd.readouterr().err


def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands of cells from now on; each process fails at once, and has listed its open files."""
    found: list[tuple[str, ...]] = []

    def command(*arguments: str) -> list[str]:
        found.append(arguments)
        return ["sh", "-c", "ls -l /proc/self/fd; exit 1"]

    monkeypatch.setattr(child_process, "command", command)
    return found


@pytest.mark.slow
def test_debug_is_the_level_of_all_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    commands = started(monkeypatch)
    monkeypatch.setattr(command, "_require_demonstrations", lambda folder, config: None)
    given = [*LEVELS, "--architectures=mlp_baseline", "--replay-data-dir=demos", f"--output-dir={tmp_path}"]
    assert experiment(*given) == 1
    (folder,) = tmp_path.iterdir()
    log = folder / "x.log"
    assert " DEBUG " not in log.read_text()
    assert "--log-level=info" in commands[-1]
    assert experiment(f"--resume-from={folder}", "--debug") == 1
    # An experiment that is resumed after a kill waits for whatever still runs in the cell.
    for output in ("with_pretrain_pretrain.log", "with_pretrain.log"):
        assert "/with_pretrain.lock\n" in (folder / "mlp_baseline" / output).read_text()
    # Which command the log of the experiment names, and the level of the training's own log.
    assert re.search(r" DEBUG .*mlp_baseline/with_pretrain/seed_0: jaxrl pretrain --config=", log.read_text())
    assert commands[-1][0] == "jaxrl.main"
    assert "--log-level=debug" in commands[-1]
    assert "mlp_baseline/with_pretrain/seed_0 failed: " in capfd.readouterr().err


def products(config: Config) -> list[str]:
    """The dtypes that all matrix products and convolutions of acting take, those that are prepared too."""
    spec = spec_of(config.env)
    agent = build_agent(config, spec)
    function = PolicyFunction.without_parameters(agent, spec)
    obs, carry, reset = jax.eval_shape(lambda: function.example(2))

    def act(state, obs, carry, reset):
        return agent.forward(agent.prepare(state), obs, carry, reset, None)

    text = jax.jit(act).lower(function.state, obs, carry, reset).as_text()
    found: Callable[[str], list[str]] = re.compile(
        r"stablehlo\.(?:dot_general|convolution).* : \(tensor<[0-9x]*x(\w+)>"
    ).findall
    return found(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp_baseline", "gat"])
def test_mixed_precision_computes_networks_in_bfloat16(name: str, tmp_path: Path) -> None:
    """All but the last layers, of policy and value, which stay in float32."""
    whole, mixed = (
        ExperimentPlan.of(options(architectures=(name,), mixed_precision=x), tmp_path) for x in (False, True)
    )
    before, after = (products(plan.config(plan.cells[0], with_suite=False)) for plan in (whole, mixed))
    assert set(before) == {"f32"}
    assert after == ["bf16"] * (len(before) - 2) + ["f32"] * 2
    assert len(before) == {"mlp_baseline": 4, "gat": 7}[name]


def test_the_table_of_the_docs_has_all_flags_with_their_defaults() -> None:
    page = (Path(__file__).parents[2] / "docs/architectures.md").read_text()
    rows = re.findall(r"^\| (`--[^|]+) \| ([^|]+) \| .+ \|$", page, re.MULTILINE)
    table = dict[str, str]()
    for flags, defaults in rows:
        names, values = re.findall(r"`--([a-z0-9-]+)`", flags), defaults.replace("`", "").split(", ")
        table |= dict(zip(names, values if len(values) > 1 else values * len(names), strict=True))
    assert table.keys() == {argument.name for argument in main.arguments if argument.kind}
    for declared in declarations(ExperimentOptions):
        name, default = declared.attribute.replace("_", "-"), declared.default
        if default is None or name not in table:
            continue  # what is known where it runs, in words; the level of the log, which is --debug
        words = {False: "off", "": "required" if name in REQUIRED else "none", (): "required", (0,): "0"}
        shown = table[name].replace("_", "") if isinstance(default, int) else table[name]
        assert shown == str(words.get(default, default)), name
