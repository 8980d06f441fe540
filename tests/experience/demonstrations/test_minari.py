"""Minari data sets: what is written, Minari reads; what is read has its names, spaces and numbers checked."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from jaxrl.envs.base import Box, Dict, Discrete, MultiDiscrete
from jaxrl.envs.host.spaces import action_leaf, action_space, observation_space
from jaxrl.envs.host.worker import describe
from jaxrl.experience.demonstrations import DatasetFault, foreign_files, read_dataset
from tests.experience.demonstrations.samples import SPEC, episode

minari = pytest.importorskip("minari")
pytest.importorskip("h5py")
EpisodeBuffer = pytest.importorskip("minari.data_collector.episode_buffer").EpisodeBuffer
MinariStorage = pytest.importorskip("minari.dataset.minari_storage").MinariStorage


@pytest.fixture
def written(tmp_path: Path) -> Path:
    episodes = [episode(5, 1), episode(3, 2, terminated=False)]
    foreign_files.write_minari(tmp_path / "line/data", episodes, SPEC, "line")
    return tmp_path / "line"


def test_minari_reads_what_is_written(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(written.parent))
    found = list(minari.MinariDataset(written / "data").iterate_episodes())
    assert [len(e) for e in found] == [5, 3]
    np.testing.assert_array_equal(found[0].observations, episode(5, 1).observations)
    np.testing.assert_array_equal(found[1].truncations, episode(3, 2, terminated=False).truncations)
    # The first is what the reset told: nothing.
    np.testing.assert_array_equal(found[0].infos["odd"], [np.nan, np.nan, 1, np.nan, 3, np.nan])


def test_what_is_written_is_read(written: Path) -> None:
    for place in (written, written / "data"):
        found = read_dataset(str(place), SPEC, verify=True)
        assert [len(e) for e in found.episodes] == [5, 3]
        np.testing.assert_array_equal(found.episodes[1].actions, episode(3).actions)
        assert not found.episodes[1].terminations.any()


def test_dict_observations(tmp_path: Path) -> None:
    space = Dict((("map", Box.of(0, 9, (2, 2), np.uint8)), ("own", Discrete(9))))
    spec = dataclasses.replace(SPEC, observation_space=space)
    rows = {"map": np.ones((4, 2, 2), np.uint8), "own": np.arange(4)}
    one = dataclasses.replace(episode(3), observations=rows)
    foreign_files.write_minari(tmp_path / "d/data", [one], spec, "d")
    (found,) = read_dataset(str(tmp_path / "d"), spec).episodes
    np.testing.assert_equal(found.observations, rows)
    other = Dict((("map", Box.of(0, 9, (3, 2), np.uint8)), ("own", Discrete(9))))
    wrong = dataclasses.replace(SPEC, observation_space=other)
    with pytest.raises(DatasetFault, match="episode 0: observations.map .* must have rows of the space's"):
        read_dataset(str(tmp_path / "d"), wrong)


@pytest.mark.parametrize(
    ("space", "actions"),
    [(Discrete(3, start=5), [7, 5]), (MultiDiscrete((3, 2), start=(5, -1)), [[7, -1], [5, 0]])],
)
def test_numbers_are_the_environments(space: Any, actions: Any, tmp_path: Path) -> None:
    spec = dataclasses.replace(SPEC, action_space=space)
    one = dataclasses.replace(episode(2), actions=np.array(actions))
    foreign_files.write_minari(tmp_path / "n/data", [one], spec, "n")
    said = minari.MinariDataset(tmp_path / "n/data").action_space
    assert all(said.contains(action) for action in np.array(actions))
    (found,) = read_dataset(str(tmp_path / "n"), spec).episodes
    np.testing.assert_array_equal(found.actions, actions)


def test_parts_within_parts_and_actions_of_several(tmp_path: Path) -> None:
    """Minari's own writer is the oracle: what a Gymnasium environment with these spaces gives."""
    seen = {"camera": {"left": np.ones((4, 2, 2), np.float32)}, "pair": (np.arange(4), np.ones((4, 1)))}
    done = (np.array([2, 0, 1]), {"push": np.full((3, 2), 0.5, np.float32)})
    space = spaces.Dict(
        {
            "camera": spaces.Dict({"left": spaces.Box(0, 1, (2, 2), np.float32)}),
            "pair": spaces.Tuple((spaces.Discrete(9), spaces.Box(0, 1, (1,)))),
        }
    )
    actions = spaces.Tuple((spaces.Discrete(3), spaces.Dict({"push": spaces.Box(-1, 1, (2,), np.float32)})))
    (tmp_path / "theirs/data").mkdir(parents=True)
    theirs = MinariStorage.new(tmp_path / "theirs/data", space, actions, jpeg_encoding=False)
    ends = [False, False, True]
    theirs.update_episodes(
        [EpisodeBuffer(id=0, observations=seen, actions=done, rewards=[1.0, 2.0, 3.0], terminations=ends,
                       truncations=[False] * 3, infos={})]
    )  # fmt: skip
    spec = dataclasses.replace(
        SPEC,
        observation_space=observation_space(describe(space)),
        action_space=action_space(action_leaf(describe(actions))),
        has_action_mask=False,
    )
    (found,) = read_dataset(str(tmp_path / "theirs"), spec).episodes
    np.testing.assert_array_equal(found.observations["camera.left"], seen["camera"]["left"])
    np.testing.assert_array_equal(found.observations["pair.0"], seen["pair"][0])
    np.testing.assert_array_equal(found.actions, [[2, 0.5, 0.5], [0, 0.5, 0.5], [1, 0.5, 0.5]])
    foreign_files.write_minari(tmp_path / "ours/data", [found], spec, "ours")
    ours = minari.MinariDataset(tmp_path / "ours/data")
    assert (ours.spec.observation_space, ours.spec.action_space) == (space, actions)
    np.testing.assert_equal(next(ours.iterate_episodes()).actions, done)


@pytest.mark.parametrize(
    ("name", "given"),
    [("line", "line-v0"), ("line-v3", "line-v3"), ("my lines.2", "my-lines-2-v0"), ("v2", "v2-v0")],
)
def test_the_id_has_a_version(tmp_path: Path, name: str, given: str) -> None:
    foreign_files.write_minari(tmp_path / "d/data", [episode(3)], SPEC, name)
    spec = minari.MinariDataset(tmp_path / "d/data").spec
    assert spec.dataset_id == given


def without_spaces(written: Path) -> None:
    """With an environment that Minari would import to ask it for its spaces."""
    file = written / "data/metadata.json"
    metadata: dict[str, Any] = json.loads(file.read_text())
    del metadata["action_space"]
    file.write_text(json.dumps(metadata | {"env_spec": json.dumps({"entry_point": "no_such_module:Env"})}))


def cut(written: Path) -> None:
    file = written / "data/main_data.hdf5"
    file.write_bytes(file.read_bytes()[:500])


@pytest.mark.parametrize(
    ("damage", "message"),
    [(without_spaces, "metadata.json: names no spaces"), (cut, "cannot be read")],
)
def test_faults_are_one_line(written: Path, damage: Any, message: str) -> None:
    damage(written)
    with pytest.raises(DatasetFault, match=message) as caught:
        read_dataset(str(written), SPEC)
    assert "\n" not in str(caught.value)


def test_numbers_are_checked(tmp_path: Path) -> None:
    bad = episode(5).observations.copy()
    bad[2, 0] = np.nan
    foreign_files.write_minari(
        tmp_path / "n/data", [episode(4), dataclasses.replace(episode(5), observations=bad)], SPEC, "n"
    )
    with pytest.raises(DatasetFault, match="episode 1: observations must be finite; row 2 is not"):
        read_dataset(str(tmp_path / "n"), SPEC)
