"""A run that is killed in a stage, of a curriculum or of training, ends as one that was not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.harness import Run, differences
from tests.faults.tiny import STEPS

COUNT = 24  # iterations of a stage, so that it lasts long enough to be killed in
CURRICULUM = f"""
window: 20
success: 0.01
least_steps: {(COUNT - 8) * STEPS}
most_steps: {COUNT * STEPS}
earlier: 0.3
stages:
  - task: {{difficulty: 0}}
  - task: {{obstacles: [0, 2], moving: 1}}
  - task: {{difficulty: 0.5}}
  - task: {{}}
"""
TRAINING = f"""
- {{iterations: {COUNT}}}
- {{iterations: {COUNT}, learning_rate: 3.0e-3, network.frozen: ["params/MLP_0/*"]}}
- {{iterations: {COUNT}, env.name: gymnax:CartPole-v1(masspole=0.2), fresh: ["params/head/*"]}}
"""
# Of both: the file, the field that names it, the metric that says the stage, the environment, the stages to
# kill in, and the last one.
KINDS = {
    "curriculum": (
        CURRICULUM,
        "curriculum.file",
        "curriculum/stage",
        "jaxrl:Navigation(max_steps=30)",
        (1, 3),
        4,
    ),
    "training": (TRAINING, "stages", "stage", "gymnax:CartPole-v1", (2, 3), 3),
}


# A curriculum resumes in each of its stages in tests/training/test_curriculum.py, in one process.
@pytest.fixture(params=["curriculum", "training"])
def runs(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Run, Run, str, tuple[int, ...], int]]:
    text, field, metric, env, killed_in, last = KINDS[request.param]
    file = tmp_path / "stages.yaml"
    file.write_text(text)
    options = [f"--config.{field}={file}", f"--config.env.name={env}", f"--config.log.every_steps={STEPS}"]
    options += [f"--config.stop.steps={last * COUNT * STEPS}", "--config.ppo.schedule=constant"]
    options += [f"--config.checkpoint.every_steps={COUNT // 8 * STEPS}"]
    found = Run(tmp_path / "straight", *options), Run(tmp_path / "run", *options)
    yield (*found, metric, killed_in, last)
    for run in found:
        run.end()


@pytest.mark.long
def test_killed_in_a_stage_it_ends_the_same(runs: tuple[Run, Run, str, tuple[int, ...], int]) -> None:
    straight, run, metric, killed_in, last = runs
    assert straight.train().code == 0

    def stage() -> float:
        return next((row[metric] for row in reversed(run.rows()) if metric in row), 0)

    for number in killed_in:
        training = run.start()
        training.wait_until(lambda: run.checkpoints and stage() >= number)  # noqa: B023
        training.kill()
        assert stage() == number
        assert run.newest() < last * COUNT * STEPS
    assert run.train().code == 0
    assert [row[metric] for row in run.rows() if metric in row][-1] == last
    assert differences(run, straight) == []
