"""The evaluation job and damaged checkpoints: it says so, names the intact ones, and changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import pytest

from jaxrl.commands.evaluate import main
from jaxrl.config import to_json
from jaxrl.envs import registry
from jaxrl.runs.checkpoint import Checkpointer
from jaxrl.runs.folder import RunFolder
from tests.compiled_programs import tiny_config, tiny_program
from tests.runs.checkpoint.checkpoints import files_of, flip_largest


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Untrained checkpoints of the steps 5, 10 and 15; the last one is damaged."""
    # Wide, so that a parameter is the largest array.
    fields = {"network__hidden_sizes": (64, 64), "network__core": "none"}
    config = tiny_config(**fields)
    env = registry.make(config.env.name, config.env.wrappers)
    state = jax.jit(tiny_program(env, **fields).init)(jax.random.key(0))
    checkpointer = Checkpointer(str(tmp_path / "checkpoints"), keep=3)
    for step in (5, 10, 15):
        checkpointer.save(step, {"learner": {"policy": state.learner.policy}}, {"config": to_json(config)})
    checkpointer.close()
    RunFolder(str(tmp_path)).write_config(config)
    flip_largest(tmp_path / "checkpoints" / "15")
    return tmp_path


def evaluate(run: Path, *arguments: str) -> int:
    return main(["jaxrl evaluate", f"--workdir={run}", "--episodes=1", *arguments])


@pytest.mark.parametrize("arguments", [(), ("--checkpoint=15",)])
def test_a_damaged_checkpoint_ends_with_one_line(
    run: Path, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    before = files_of(run)
    assert evaluate(run, *arguments) == 2
    stderr = capfd.readouterr().err
    assert len(stderr.splitlines()) == 1, stderr
    assert f"{run / 'checkpoints' / '15'} is damaged: the array learner/policy/params/" in stderr
    assert stderr.endswith("intact steps for --checkpoint: 5, 10\n")
    assert files_of(run) == before


@pytest.mark.slow
def test_an_intact_one_is_evaluated_though_config_and_latest_are_damaged(
    run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (run / "config.json").write_text('{"seed": ')
    (run / "checkpoints" / "15" / "meta" / "metadata").write_text("")
    assert evaluate(run, "--checkpoint=10") == 0, capfd.readouterr().err
    written = [json.loads(file.read_text()) for file in (run / "evaluations").iterdir()]
    assert [evaluation["step"] for evaluation in written] == [10, 10]
