"""Episodes of solvers and of replays: what `prepare-data`, `record` and `verify-data` make of them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxrl.commands import prepare_data, record, verify_data
from jaxrl.envs import registry
from jaxrl.envs.native.platformer.platformer import Platformer
from jaxrl.experience.demonstrations import read_dataset
from tests.commands.refusals import refused

ENV = "jaxrl:Platformer(category='simple')"
CARTPOLE = "gymnax:CartPole-v1"


def prepare(*arguments: str) -> int:
    return prepare_data.main(["jaxrl prepare-data", *arguments])


def verify(folder: Path, *more: str) -> int:
    return verify_data.main(["jaxrl verify-data", f"--data={folder}", *more])


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("solved") / "episodes"
    assert prepare(f"--env={ENV}", "--player=solver", "--episodes=6", f"--output={folder}") == 0
    return folder


@pytest.mark.slow
def test_the_solver_plays_each_level_in_the_fewest_steps(
    solved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = read_dataset(str(solved), registry.spec_of(ENV), verify=True)
    env = registry.make(ENV)
    assert isinstance(env, Platformer)
    by_digest = {level.digest: level for level in env.levels}
    assert len({e.level for e in found.episodes}) == 6
    for episode in found.episodes:
        assert len(episode) == by_digest[episode.level].optimal_steps
        assert episode.success
        assert episode.terminations[-1]
        assert episode.infos["success"].tolist() == [0] * (len(episode) - 1) + [1]
        assert episode.player == "solver"
    assert verify(solved) == 0
    said = capsys.readouterr().out
    assert "success   100.0%" in said
    assert "simulated 6 of 6 again: all are as written" in said


@pytest.mark.slow
def test_replays_are_sifted_and_the_reasons_named(
    solved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load(solved / "000001.npz") as stored:
        level, actions, obs = (stored[name] for name in ("level_id", "actions", "observations.state"))
        parts = {name: x for name, x in stored.items() if name.startswith("observations.")}
    replays, output = tmp_path / "replays", tmp_path / "episodes"
    replays.mkdir()

    def put(name: str, **arrays: Any) -> None:
        np.savez(replays / f"{name}.npz", **{"level_id": level, "actions": actions, **arrays})

    put("a_good", success=True, player="ann", version="2.1", observations=obs)
    put("b_same", success=True, player="bob", **parts)  # more than this environment shows
    put("c_long", actions=np.append(actions, 0), success=True)
    put("d_lies", actions=actions[:-1], success=True)
    put("e_left", actions=actions[:-1], success=False, player="bob")
    put("f_where", level_id="nowhere")
    put("g_number", level_id=10_000)
    put("h_other", observations=obs + 1)
    put("i_actions", actions=actions + 0.5)
    (replays / "j_old.pkl").write_bytes(b"cos\nsystem\n")
    (replays / "k_cut.npz").write_bytes((replays / "a_good.npz").read_bytes()[:50])
    line = {"digest": str(level), "category": "simple", "actions": "1111", "success": False}
    (replays / "l_play.jsonl").write_text(json.dumps(line) + "\n")
    capsys.readouterr()
    assert prepare(f"--env={ENV}", f"--replays={replays}", f"--output={output}") == 0
    said = capsys.readouterr().out
    steps = len(actions)
    for name, reason in {
        "c_long.npz": f"its episode ends after step {steps} of its {steps + 1}",
        "d_lies.npz": "it claims to end with success, its actions end without",
        "f_where.npz": "its level_id (='nowhere') is none of the 12 levels",
        "g_number.npz": "its level_id (='10000') is none of the 12 levels",
        "h_other.npz": "simulated again its observations are others, first in row 0",
        "i_actions.npz": "actions must lie in the space Discrete",
        "j_old.pkl": "pickled files can run any code and are not read; convert them where you trust them",
        "k_cut.npz": "is no .npz of arrays, or cut short",
    }.items():
        assert f"dropped {replays / name}: {reason}" in said
    assert said.count("dropped") == 8
    assert "1 duplicates left out" in said
    assert "levels    simple 3" in said
    assert "success   33.3%" in said
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["simulated"]["duplicates"] == [str(replays / "b_same.npz")]
    assert manifest["simulated"]["versions"] == ["2.1"]
    found = read_dataset(str(output), registry.spec_of(ENV), verify=True)
    assert [(e.player, len(e)) for e in found.episodes] == [("ann", steps), ("bob", steps - 1), ("person", 4)]
    np.testing.assert_array_equal(found.episodes[0].observations, obs)

    only = tmp_path / "only"
    assert prepare(f"--env={ENV}", f"--replays={replays}", f"--output={only}", "--successful") == 0
    assert "ends without success, after 4 steps" in capsys.readouterr().out
    assert len(read_dataset(str(only), registry.spec_of(ENV)).episodes) == 1


@pytest.mark.slow
def test_an_episode_that_no_actions_lead_to_is_found(
    solved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "changed"
    folder.mkdir()
    manifest = json.loads((solved / "manifest.json").read_text())
    for file in sorted(solved.glob("*.npz")):
        with np.load(file) as stored:
            arrays: dict[str, Any] = dict(stored)
        if file.name == "000003.npz":
            arrays["rewards"][2] += 1
        np.savez(folder / file.name, **arrays)
        content = (folder / file.name).read_bytes()
        manifest["episodes"][file.name]["digest"] = hashlib.blake2b(content, digest_size=16).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert verify(folder, "--simulate=0") == 0
    capsys.readouterr()
    assert verify(folder) == 1
    said = capsys.readouterr().err
    assert said == f"error: {folder}/000003.npz: simulated again its rewards are others, first in row 2\n"


def test_episodes_follow_from_seeds_where_there_are_no_levels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replays, output = tmp_path / "replays", tmp_path / "episodes"
    replays.mkdir()
    actions = np.arange(9) % 2
    np.savez(replays / "a.npz", actions=actions, seed=7)
    np.savez(replays / "b.npz", actions=actions, seed=8)
    np.savez(replays / "c.npz", actions=actions)
    assert prepare(f"--env={CARTPOLE}", f"--replays={replays}", f"--output={output}") == 0
    assert "c.npz: has no seed, which its episode follows from" in capsys.readouterr().out
    found = read_dataset(str(output), registry.spec_of(CARTPOLE)).episodes
    assert [e.seed for e in found] == [7, 8]
    env = registry.make(CARTPOLE)
    key = jax.random.key(7)
    state, obs = env.reset(key)
    seen = [obs]
    for t, action in enumerate(actions):
        state, step = env.step(jax.random.fold_in(key, t), state, jax.numpy.int32(action))
        seen.append(step.obs)
    np.testing.assert_allclose(found[0].observations, np.stack(seen), rtol=1e-5, atol=1e-6)
    assert verify(output) == 0


@pytest.mark.slow
def test_a_solver_on_the_device_is_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "jaxrl:memory/TMaze(length=3)"
    arguments = (f"--env={name}", "--player=solver", f"--output={tmp_path / 'data'}", "--episodes=4")
    assert record.main(["jaxrl record", *arguments]) == 0
    assert "4 episodes, 16 steps, mean return 4.00" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--replays=old.pkl"],
            "`--replays`: old.pkl: pickled files can run any code and are not read; convert",
        ),
        (["--replays=nowhere"], "`--replays`: nowhere: is not there"),
        (["--replays={empty}"], "holds no replay (*.npz, *.jsonl)"),
        (["--player=solver", "--episodes=13"], "`--episodes` (=13) must be at most 12, the number of levels"),
        (["--player=me"], "`--player` (='me') must be solver"),
        (["--player=solver", "--replays=x"], "`--player` and `--replays` exclude each other"),
        (["--replays=x", "--episodes=3"], "`--episodes` is not for `--replays`"),
        (["--player=solver", "--env={cartpole}"], "has no solver"),
        (["--replays=x", "--env=envpool:CartPole-v1"], "runs on the host, which cannot be simulated"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [argument.format(empty=tmp_path, cartpole=CARTPOLE) for argument in arguments]
    env = [] if any(x.startswith("--env") for x in given) else [f"--env={ENV}"]
    assert message in refused(capsys, "prepare-data", *env, f"--output={tmp_path / 'x'}", *given)
