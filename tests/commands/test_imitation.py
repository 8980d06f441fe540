"""`jaxrl record` of a run, `verify-data` of what it wrote, and `jaxrl pretrain` to its last lines."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.commands import pretrain, record, train, verify_data
from jaxrl.envs import registry
from jaxrl.experience.demonstrations import read_dataset, record_episodes, write_dataset
from jaxrl.experience.demonstrations.recording import Player
from jaxrl.types import Array, PyTree
from tests.commands.refusals import refused
from tests.inference.runs import save_run

MEMORY = "jaxrl:ProbeMemory(delay=4)"
POLICY = "jaxrl:ProbePolicy"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recurrent policy with random parameters, which succeeds where the cue happens to suit it."""
    folder = tmp_path_factory.mktemp("run") / "teacher"
    save_run(folder, env__name=MEMORY, env__success="return >= 1", normalize__observations=True)
    return folder


@pytest.mark.slow
def test_episodes_of_a_run_are_those_that_its_policy_plays(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "episodes"
    given = [str(run), f"--output={output}", "--episodes=6", "--greedy", "--seed=3"]
    assert record.main(["jaxrl record", *given]) == 0
    out = capfd.readouterr().out
    assert "6 episodes, 30 steps, mean return " in out
    assert f"jaxrl pretrain --config=CONFIG --data={output}" in out
    manifest = json.loads((output / "manifest.json").read_text())
    facts = {"env": MEMORY, "mode": "greedy", "seed": 3, "player": f"{run} step 7"}
    assert {name: manifest[name] for name in facts} == facts
    assert manifest["made_with"]["versions"]["jax"]
    policy = jaxrl.load(str(run))
    episodes = read_dataset(str(output), registry.spec_of(MEMORY), verify=True).episodes
    for episode in episodes:
        carry: Any = None
        played = list[int]()
        for obs in episode.observations[:-1]:
            action, carry = policy.act(obs, carry, sample=False)
            played.append(int(action))
        assert episode.actions.tolist() == played
        assert episode.terminations.tolist() == [False] * 4 + [True]
        assert episode.success == (episode.episode_return == 1)
    assert len({str(episode.observations[0]) for episode in episodes}) == 2  # both cues
    assert verify_data.main(["jaxrl verify-data", f"--data={output}"]) == 0
    out = capfd.readouterr().out
    assert "episodes  6, 30 steps" in out
    assert f"players   {run} step 7" in out
    assert f"success   {np.mean([e.success for e in episodes]):.1%}" in out


def test_a_folder_that_is_not_empty_is_left_alone(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert "exists and is no empty folder" in refused(capfd, "record", str(run), f"--output={tmp_path}")
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


class Sign(Player):
    """Answers the sign that it sees, rightly or wrongly."""

    def __init__(self, right: bool):
        self.name = "right" if right else "wrong"
        self._right = right

    def initial_carry(self, n: int) -> PyTree:
        return jnp.zeros(n)

    def act(self, obs: PyTree, carry: PyTree, reset: Array, mask: Any, keys_B: Array) -> tuple[Array, PyTree]:
        return ((obs[:, 0] > 0) == self._right).astype(jnp.int32), carry


def cloned(tmp_path: Path, player: Player, *more: str) -> dict[str, Any]:
    """The report of a clone of 80 episodes of a player, in 12 updates a pass."""
    data, spec = tmp_path / "data", registry.spec_of(POLICY)
    recorded = record_episodes(POLICY, (), player, 80, seed=0)
    write_dataset(data, recorded, spec, {"env": POLICY, "wrappers": []})
    (tmp_path / "tiny.py").write_text(
        "from jaxrl.config import default_config\n\n\ndef get_config():\n"
        "    c = default_config()\n"
        f"    c.env.update(name={POLICY!r}, num_envs=8, success='return >= 1')\n"
        "    c.network.update(core='none', hidden_sizes=(8,))\n"
        "    c.evaluate.episodes = 32\n"
        "    c.stop.steps = 1000\n"
        "    return c\n"
    )
    given = [
        f"--config={tmp_path / 'tiny.py'}",
        f"--data={data}",
        "--bc-epochs=8",
        "--bc-batch-size=8",
        f"--workdir={tmp_path / 'clone'}",
        *more,
    ]
    assert pretrain.main(["jaxrl pretrain", *given]) == 0
    return json.loads((tmp_path / "clone" / "clone.json").read_text())


@pytest.mark.slow
def test_a_clone_is_told_by_accuracy_likelihood_and_play(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its teacher is wrong, and it has learnt what it was shown."""
    found = cloned(tmp_path, Sign(right=False), "--bc-learning-rate=0.1")
    out = capfd.readouterr().out.splitlines()
    data, learnt, told, command = out[-4:]
    assert data == f"data         80 episodes, 80 steps: {tmp_path / 'data'}"
    assert learnt.startswith("learnt       accuracy 100.0%, ")
    assert learnt.endswith(" without seeing anything, on validation episodes")
    nats = [float(x) for x in re.findall(r"([\d.e-]+) (?:nats|without)", learnt)]
    assert nats == pytest.approx([found["loss"], found["prior_loss"]], rel=1e-2)
    way = "return -1.000, success 0.0%"
    assert told == f"played       greedy {way}; sampled {way}"
    # One of two signs, as likely as the other: log 2 without seeing it, and less of the few that validate.
    assert found["loss"] < 0.1 < 0.3 < found["prior_loss"] <= np.log(2) + 1e-6
    clone = tmp_path / "clone"
    assert command.startswith("next  ")
    _, _, line = command.partition(" train ")
    assert [*line.split()[1:4]] == [
        f"--config.init_from={clone}",
        f"--config.ppo.teacher={clone}",
        "--config.ppo.value_warmup=2",
    ]
    assert train.main(["jaxrl train", *shlex.split(line), f"--workdir={tmp_path / 'trained'}"]) == 0
    assert (found["passed"], found["episodes"]) == (True, {"training": 72, "validation": 8})
    assert found["data"]["players"] == ["wrong"]


@pytest.mark.slow
def test_a_clone_that_has_learnt_nothing_is_warned_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert not cloned(tmp_path, Sign(True), "--bc-learning-rate=0")["passed"]
    *_, last = capfd.readouterr().out.splitlines()
    assert last.startswith("warning: the clone is no better than one without observations; without it: ")
    assert last.endswith(f" train --config={tmp_path / 'tiny.py'}")
