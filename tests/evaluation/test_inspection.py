"""The page of one episode: what it says of each step is what the policy does, and it is safe."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl.commands import evaluate
from jaxrl.envs import filming, registry
from jaxrl.evaluation import inspection, trained_policy
from jaxrl.evaluation.evaluator import EvaluationTask
from tests.commands.refusals import refused
from tests.inference.runs import save_run

pytest.importorskip("PIL")
CARTPOLE = "gymnax:CartPole-v1"
ROOM = "jaxrl:Navigation(max_steps=40)"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspection") / "<script>alert(1)"
    save_run(folder, env__name=CARTPOLE, network__core="lstm", network__core_size=8)
    return folder


@pytest.mark.slow
def test_each_step_is_what_the_policy_does(run: Path) -> None:
    trained = trained_policy.load(str(run))
    rows, ended = inspection.play(trained, EvaluationTask(CARTPOLE, ()), sample=False, seed=3)
    assert ended
    assert sum(row["reward"] for row in rows) == len(rows)  # 1 for each step
    policy, carry = jaxrl.load(run), None
    film = filming.film(CARTPOLE, (), 3)
    shot = next(film)
    for row in rows:
        units = [] if carry is None else np.concatenate([carry["policy"][k] for k in sorted(carry["policy"])])
        np.testing.assert_allclose(
            row["carry"], units if len(units) else np.zeros(len(row["carry"])), atol=1e-3
        )
        action, carry = policy.act(shot.obs, carry)
        assert row["action"] == [float(action)]
        assert int(np.argmax(row["choice"]["probability"])) == action
        assert sum(row["choice"]["probability"]) == pytest.approx(1, abs=1e-3)
        shot = film.send(action)
    assert shot.over


def test_rewards_are_those_that_episodes_report() -> None:
    """1 for each step of CartPole, whatever is learnt from."""
    film = filming.film("gymnax:CartPole-v1", ("reward_scale(factor=10.0)",), 0)
    assert [next(film).reward, film.send(0).reward, film.send(1).reward] == [0.0, 1.0, 1.0]
    film.close()


@pytest.mark.slow
def test_reports_of_a_step_are_those_of_the_environment(tmp_path: Path) -> None:
    save_run(tmp_path / "run", env__name=ROOM, network__core="none")
    rows, _ = inspection.play(trained_policy.load(str(tmp_path / "run")), EvaluationTask(ROOM, ()), True, 5)
    env = registry.make(ROOM)
    reset_key, key = jax.random.split(jax.random.key(5))
    state, _ = jax.jit(env.reset)(reset_key, env.default_task)
    advance = jax.jit(env.step)
    for t, row in enumerate(rows):
        state, step = advance(jax.random.fold_in(key, t), state, np.asarray(row["action"], np.float32))
        said = {name: float(step.info[name]) for name in ("success", "collision")}
        assert row["reports"] == {name: x for name, x in said.items() if not np.isnan(x)}
    assert rows[-1]["reports"].keys() == said.keys()


@pytest.mark.slow
def test_the_page_holds_the_steps_and_no_script_of_others(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "not/there/episode.html"
    arguments = [f"--workdir={run}", "--episodes=0", "--seed=3", f"--inspect={file}"]
    assert evaluate.main(["jaxrl evaluate", *arguments]) == 0
    steps = int(re.findall(r"episode of (\d+) steps", capsys.readouterr().out)[0])
    page = file.read_text()
    assert page.count("<script") == 2
    assert "&lt;script&gt;alert(1)" in page
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    rows = json.loads(found[0])
    assert len(rows) == steps
    assert len(rows[0]["carry"]) == 16  # c and h
    assert rows[0]["picture"]
    assert "http" not in re.sub(r"http://www\.w3\.org/2000/svg", "", page)


@pytest.mark.parametrize("given", ["episode.txt", "episode.html"])
def test_bad_input_is_one_line(given: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = ["--suite=cartpole"] if given.endswith(".html") else []
    assert f"`--inspect` (={given!r}) must be a file that ends in .html" in refused(
        capsys, "evaluate", f"--workdir={run}", f"--inspect={given}", *suite
    )
