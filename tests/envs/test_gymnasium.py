"""Gymnasium environments in worker processes: the contract of `HostEnv`, and faults by their names."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs import filming
from jaxrl.envs.base import Box, Dict, Discrete, InfoMetric, MultiDiscrete
from jaxrl.envs.host.workers import rows_of_workers
from jaxrl.envs.host_env import HostEnvError, HostOptions
from tests import processes

MODULE = "gymnasium:tests.envs.host_environments"


def play(env, actions_TB):
    """Every `HostStep` of all groups, joined; [T + 1, B] of each field, the first observations included."""
    groups = range(env.num_groups)
    size = env.num_envs // env.num_groups
    rows = []
    for t in range(len(actions_TB) + 1):
        if t > 0:
            for g in groups:
                env.send(g, actions_TB[t - 1][g * size : (g + 1) * size])
        steps = [env.recv(g) for g in groups]
        rows.append([np.concatenate([getattr(s, f) for s in steps]) for f in FIELDS])
    return dict(zip(FIELDS, map(np.stack, zip(*rows, strict=True)), strict=True))


FIELDS = ("obs", "reward", "terminated", "truncated", "first", "score", "game_over")


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("num_groups", "num_workers"),
    [(1, 1), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((2, 2), (1, 3)))],
)
def test_environments_reset_on_the_step_after_an_end(start, num_groups, num_workers):
    # correctness 10, and the number of processes changes nothing.
    env = start(f"{MODULE}:Count", num_groups=num_groups, num_workers=num_workers)
    actions = np.arange(8 * 4).reshape(8, 4) % 4
    got = play(env, actions)
    # One row per observation: reset, three steps; the action at the row after the third is ignored.
    time_T = np.array([0, 1, 2, 3, 0, 1, 2, 3, 0])
    episode_T = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2])
    first_T = np.array([1, 0, 0, 0, 1, 0, 0, 0, 1], bool)
    assert got["obs"].dtype == np.float32
    np.testing.assert_array_equal(got["obs"][..., 0], np.broadcast_to(np.arange(4), (9, 4)))
    np.testing.assert_array_equal(got["obs"][:, 2, 1], episode_T)
    np.testing.assert_array_equal(got["obs"][:, 2, 2], time_T)
    np.testing.assert_array_equal(got["first"], np.repeat(first_T[:, None], 4, axis=1))
    ends = (time_T == 3)[:, None]
    np.testing.assert_array_equal(got["terminated"], ends & (episode_T == 0)[:, None] & np.ones(4, bool))
    np.testing.assert_array_equal(got["truncated"], ends & (episode_T == 1)[:, None] & np.ones(4, bool))
    np.testing.assert_array_equal(got["game_over"], got["terminated"] | got["truncated"])
    reward = np.concatenate([np.zeros((1, 4)), actions + 10 + time_T[1:, None] / 10])
    np.testing.assert_allclose(got["reward"], np.where(got["first"], 0, reward), rtol=1e-6)
    np.testing.assert_array_equal(got["score"], got["reward"])


def test_episodes_after_the_first_are_drawn_on(start):
    """The seed is for the first reset: the others go on with the environment's own random numbers."""
    env = start("gymnasium:CartPole-v1(max_episode_steps=2)", num_groups=1, num_workers=1)
    got = play(env, np.zeros((6, 4), np.int64))
    begins = got["obs"][got["first"][:, 0]]
    assert len(begins) == 3
    bare = gymnasium.make("CartPole-v1")
    seeds = [0, None, None]
    np.testing.assert_allclose(begins[:, 0], [bare.reset(seed=seed)[0] for seed in seeds], rtol=1e-6)
    assert len(np.unique(begins.reshape(-1, 4), axis=0)) == 12


def test_first_episodes_can_be_cut_off(start):
    # correctness 24.
    env = start(f"{MODULE}:Count(length=5)", first_episode_steps=(1, 3, 5, 9))
    got = play(env, np.zeros((8, 4), int))
    assert [np.flatnonzero(x).tolist() for x in got["truncated"].T] == [[1, 7], [3], [], []]
    assert [np.flatnonzero(x).tolist() for x in got["terminated"].T] == [[], [], [5], [5]]
    assert [np.flatnonzero(x).tolist() for x in got["first"].T] == [[0, 2, 8], [0, 4], [0, 6], [0, 6]]


def test_what_environments_tell(start):
    name = f"{MODULE}:Telling"
    spec = envs.make_host(name, ["report(key='time', per_episode='max')", "report(key='other')"]).spec
    assert spec.reports == (InfoMetric("success", "last"), InfoMetric("time", "max"), InfoMetric("other"))
    env = start(name, info_keys=("success", "time", "other"))
    env.recv(0)
    info = []
    for _ in range(8):  # two episodes of 3 steps, the second cut off, and a reset before each but the first
        env.send(0, np.zeros(4, int))
        info.append({key: x.copy() for key, x in env.recv(0).info.items()})
    nan = np.nan
    told = {key: [x[key][0] for x in info] for key in ("success", "time", "other")}
    np.testing.assert_array_equal(told["time"], [1, nan, 3, nan, 1, nan, 3, nan])
    np.testing.assert_array_equal(told["success"], [nan, nan, 1, nan, nan, nan, 0, nan])
    assert np.isnan(told["other"]).all()


def test_what_is_told_must_be_a_number(start):
    env = start(f"{MODULE}:Telling(wrong=True)", info_keys=("time",))
    env.recv(0)
    env.send(0, np.zeros(4, int))
    with pytest.raises(HostEnvError, match=r"step 1: gave ndarray as info\['time'\], which is reported"):
        env.recv(0)


def test_spaces_and_values_of_every_kind(start):
    name = f"{MODULE}:Rich"
    spec = envs.make_host(name).spec
    assert spec.name == name
    assert spec.action_space == MultiDiscrete((3, 2))
    assert spec.observation_space == Dict(
        (
            ("bits", MultiDiscrete((2, 2))),
            ("camera.left", Box.of(0, 255, (6, 5, 3), np.uint8)),
            ("double", Box.of(-1, 1, (2,))),
            ("pair.0", Discrete(3, start=-1)),
            ("pair.1", MultiDiscrete((4, 5))),
        )
    )
    env = start(name)
    env.recv(0)
    env.send(0, np.array([[2, 0], [1, 1], [0, 1], [0, 0]]))
    obs = env.recv(0).obs
    assert {key: (x.shape, str(x.dtype)) for key, x in obs.items()} == {
        "bits": ((4, 2), "int32"),
        "camera.left": ((4, 6, 5, 3), "uint8"),
        "double": ((4, 2), "float32"),
        "pair.0": ((4,), "int32"),
        "pair.1": ((4, 2), "int32"),
    }
    np.testing.assert_array_equal(obs["pair.0"], [2, 1, 0, 0])  # counted from 0, whatever its space starts at
    np.testing.assert_array_equal(obs["pair.1"], [[3, 0], [3, 1], [3, 1], [3, 0]])
    np.testing.assert_array_equal(obs["double"][1], [0.5, -0.5])
    assert (obs["camera.left"] == 7).all()


def test_parts_of_an_observation_can_be_chosen(start):
    env = start(f"{MODULE}:Rich(keys=('pair.0', 'bits'))", num_envs=1)
    assert [key for key, _ in env.spec.observation_space.spaces] == ["bits", "pair.0"]
    assert sorted(env.recv(0).obs) == ["bits", "pair.0"]


def test_actions_keep_their_values(start):
    env = start(f"{MODULE}:Pusher")
    env.recv(0)
    action = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)
    env.send(0, action)
    np.testing.assert_array_equal(env.recv(0).obs, action)


@pytest.mark.parametrize(
    ("low", "high", "dtype"), [(-1, 2, "int64"), pytest.param(0, 255, "uint8", marks=pytest.mark.slow)]
)
def test_a_box_of_integers_is_choices(low, high, dtype, start):
    env = start(f"{MODULE}:Pusher(low={low}, high={high}, dtype={dtype!r})")
    count = high - low + 1
    assert env.spec.action_space == MultiDiscrete((count, count), start=(low, low))
    env.recv(0)
    action = np.array([[0, count - 1], [1, 2], [2, 0], [count - 1, 1]], np.int32)
    env.send(0, action)
    np.testing.assert_array_equal(env.recv(0).obs, action + low)


def test_registered_names(start):
    spec = envs.make_host("gymnasium:CartPole-v1").spec
    assert (spec.max_episode_steps, spec.action_space) == (500, Discrete(2))
    assert spec.observation_space.shape == (4,)
    assert envs.make_host("gymnasium:CartPole-v1(max_episode_steps=7)").spec.max_episode_steps == 7
    env = start(f"{MODULE}:CountRegistered-v0")
    assert env.spec.max_episode_steps == 2
    got = play(env, np.zeros((3, 4), int))
    np.testing.assert_array_equal(got["truncated"].all(axis=1), [False, False, True, False])


def test_module_in_the_current_folder(tmp_path, monkeypatch, start):
    text = Path(__file__).with_name("host_environments.py").read_text()
    (tmp_path / "my_count.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert play(start("gymnasium:my_count:Count"), np.zeros((1, 4), int))["obs"].shape == (2, 4, 3)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("gymnasium:CartPol-v1", ["unknown environment", "did you mean gymnasium:CartPole-v1"]),
        ("gymnasium:CartPole-v1(gravity=1)", ["gravity"]),
        ("gymnasium:no_such_module:Thing-v0", ["no_such_module"]),
        (f"{MODULE}:Faulty", ["making it raised TypeError", "fault"]),
        (
            f"{MODULE}:Spaces(shape=(0,))",
            ["space that is not supported", "Box.shape (=(0,)) must have positive"],
        ),
        (f"{MODULE}:Spaces(actions={2**40})", ["not supported", "Discrete.n (=1099511627776) must be"]),
        (f"{MODULE}:Texts", ["space that is not supported", "Text(1, 5"]),
        (f"{MODULE}:Batch", ["is a VectorEnv: name the class of a single one"]),
        pytest.param(
            f"{MODULE}:CountBatch-v0", ["is registered as a VectorEnv alone"], marks=pytest.mark.slow
        ),
        pytest.param(
            "gymnasium:tests.envs.gymnax_environments:Walk",
            ["does not derive from gymnasium.Env"],
            marks=pytest.mark.slow,
        ),
        (f"{MODULE}:Rich(keys=('pari.0',))", ["unknown observation", "did you mean pair.0"]),
        ("gymnasm:CartPole-v1", ["unknown suite of host environments", "did you mean gymnasium"]),
    ],
)
def test_wrong_name(name, parts):
    with pytest.raises(ValueError, match=r"\S") as caught:
        envs.make_host(name)
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_wrappers_and_uneven_groups_are_refused():
    with pytest.raises(ValueError, match="needs a device environment"):
        envs.make_host(f"{MODULE}:Count", ["time_limit(steps=3)"])
    with pytest.raises(ValueError, match=r"num_groups \(=2\) must divide num_envs \(=3\)"):
        HostOptions(seeds=(1, 2, 3), num_groups=2)
    with pytest.raises(ValueError, match=r"num_workers \(=3\) must be a multiple of num_groups \(=2\)"):
        HostOptions(seeds=(1, 2, 3, 4), num_groups=2, num_workers=3)


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("raise", "raised RuntimeError: the motor is on fire (host_environments.py, line {line}: raise "),
        pytest.param("exit", "raised SystemExit: bye", marks=pytest.mark.slow),
        ("die", "its worker process exited with code 7"),
        pytest.param("crash", "its worker process was killed by signal 9 (SIGKILL)", marks=pytest.mark.slow),
        pytest.param("nan", "an observation with NaN or infinity", marks=pytest.mark.slow),
        pytest.param("shape", "an observation of shape (2,), its space has (3,)", marks=pytest.mark.slow),
        pytest.param("dtype", "an observation of dtype <U32, its space has float32", marks=pytest.mark.slow),
        pytest.param("none", "an observation of shape (), its space has (3,)", marks=pytest.mark.slow),
        pytest.param("reward", "returned the reward nan", marks=pytest.mark.slow),
        pytest.param(
            "large", "returned the reward 1e+300, more than float32 can hold", marks=pytest.mark.slow
        ),
        pytest.param("reward_shape", "a reward of shape (1,), not a number", marks=pytest.mark.slow),
        pytest.param("old", "step() returned 4 values where gymnasium's has 5", marks=pytest.mark.slow),
    ],
)
def test_faults_name_environment_and_step(start, fault, problem):
    name = f"{MODULE}:Faulty(fault={fault!r})"
    source = (Path(__file__).parent / "host_environments.py").read_text()
    line = source.partition("raise RuntimeError")[0].count("\n") + 1
    problem = problem.replace("{line}", str(line))
    env = start(name, num_groups=2, num_workers=2)
    pids = env.process_ids
    with pytest.raises(HostEnvError) as caught:
        play(env, np.zeros((6, 4), int))
    assert str(caught.value).startswith(f"{name}, environment 3, step 5: ")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
    if fault == "raise":
        assert "in step\n    raise RuntimeError" in str(caught.value.__cause__)
    # Nothing is left although nobody has closed anything yet, and no call blocks, for any group.
    assert not any(map(alive, pids))
    for group in range(2):
        with pytest.raises(HostEnvError) as again:
            env.recv(group)
        assert again.value is caught.value
    env.close()
    with pytest.raises(HostEnvError):
        env.recv(0)


def test_environments_are_divided_evenly():
    assert rows_of_workers(8, 2, 4) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert rows_of_workers(5, 1, 2) == [[[0, 1, 2], [3, 4]]]
    assert rows_of_workers(2, 1, 8) == [[[0], [1]]]


@pytest.mark.parametrize("wrappers", [(), ("frame_stack(frames=2)", "previous_reward")], ids=len)
def test_a_film_goes_as_the_environment_itself(wrappers):
    # Wrappers that keep something of earlier steps ended `jaxrl evaluate --video` with an IndexError.
    env = gymnasium.make("CartPole-v1")
    (obs, _), steps = env.reset(seed=3), 0
    seen = [obs, obs, [0]]
    with closing(filming.film("gymnasium:CartPole-v1", wrappers, 3)) as episode:
        shot = next(episode)
        while not shot.over:
            np.testing.assert_array_equal(shot.obs, np.concatenate(seen) if wrappers else obs)
            assert (shot.mask, shot.fresh) == (None, None)
            before = obs
            obs, reward, terminated, truncated, _ = env.step(steps % 2)
            seen = [before, obs, [reward]]
            shot, steps = episode.send(np.int32(steps % 2)), steps + 1
            assert (shot.reward, shot.over) == (reward, terminated or truncated)
    np.testing.assert_array_equal(shot.obs, np.concatenate(seen) if wrappers else obs)
    assert steps > 5


_LEFT_OPEN = """
import sys
from jaxrl.envs import filming
episode = filming.film("gymnasium:CartPole-v1", (), 0)
next(episode)
sys.modules["kept"] = [episode]  # until the interpreter ends
"""


@pytest.mark.slow
def test_an_episode_that_is_left_open_holds_no_process_up() -> None:
    assert processes.run("-c", _LEFT_OPEN, timeout=60).returncode == 0
