"""Files of episodes: what is written is read, and what comes from anyone is refused in one line."""

from __future__ import annotations

import dataclasses
import io
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec
from jaxrl.experience.demonstrations import DatasetFault, Episode, read_dataset, write_dataset
from jaxrl.experience.demonstrations.dataset import is_simulated
from jaxrl.experience.demonstrations.episode import EpisodeFault, check_episode, decode, encode
from tests.experience.demonstrations.samples import SPEC, episode


def written(folder: Path, episodes: list[Episode]) -> Path:
    write_dataset(folder, episodes, SPEC, {"wrappers": []})
    return folder


def assert_same(left: Episode, right: Episode) -> None:
    for field in dataclasses.fields(Episode):
        np.testing.assert_equal(getattr(left, field.name), getattr(right, field.name))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    episodes = [episode(5, 1), episode(3, 2, terminated=False)]
    found = read_dataset(str(written(tmp_path / "d", episodes)), SPEC, verify=True)
    for ours, theirs in zip(found.episodes, episodes, strict=True):
        assert_same(ours, theirs)
    summary = found.summary()
    assert (summary["episodes"], summary["steps"], summary["success"]) == (2, 8, 0.5)
    assert summary["length"] == [3, 4.0, 5]
    assert summary["players"] == ["by hand"]
    manifest = json.loads((tmp_path / "d/manifest.json").read_text())
    entry = manifest["episodes"]["000001.npz"]
    assert (entry["length"], entry["terminated"], entry["truncated"]) == (3, False, True)


def test_own_files_count_beside_a_minari_copy(tmp_path: Path) -> None:
    folder = written(tmp_path / "d", [episode(5, 1)])
    (folder / "data").mkdir()
    (folder / "data" / "metadata.json").write_text("{}")
    assert len(read_dataset(str(folder), SPEC, verify=True).episodes) == 1
    manifest = json.loads((folder / "manifest.json").read_text())
    assert not is_simulated(folder)
    (folder / "manifest.json").write_text(json.dumps({**manifest, "simulated": {}}))
    assert is_simulated(folder)


def test_the_same_episode_is_the_same_file() -> None:
    assert encode(episode(4)) == encode(episode(4))


def test_dict_observations_are_prefixed_arrays() -> None:
    space = Dict((("map", Box.of(0, 9, (2, 2), np.uint8)), ("own", Dict((("x", Discrete(4)),)))))
    spec = dataclasses.replace(SPEC, observation_space=space)
    rows = {"map": np.ones((4, 2, 2), np.uint8), "own": {"x": np.arange(4, dtype=np.int32)}}
    content = encode(dataclasses.replace(episode(3), observations=rows))
    assert set(np.load(io.BytesIO(content)).files) >= {"observations.map", "observations.own.x", "actions"}
    np.testing.assert_equal(decode(content, spec).observations, rows)


def test_whole_episodes_validate(tmp_path: Path) -> None:
    found = read_dataset(str(written(tmp_path / "d", [episode(2, i) for i in range(20)])), SPEC)
    training, validation = found.split(0.1)
    assert (len(training), len(validation)) == (18, 2)
    assert sorted(e.seed for e in (*training, *validation)) == list(range(20))
    assert [e.seed for e in found.split(0.1)[1]] == [e.seed for e in validation]
    assert len(found.split(0)[1]) == 0
    single = dataclasses.replace(found, episodes=found.episodes[:1])
    assert [len(part) for part in single.split(0.1)] == [1, 0]


def replaced(**changes: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        with np.load(folder / "000000.npz") as stored:
            arrays = dict(stored)
        for name, value in changes.items():
            if value is None:
                del arrays[name]
            else:
                arrays[name] = value
        np.savez(folder / "000000.npz", **arrays)

    return damage


def cut(folder: Path) -> None:
    content = (folder / "000000.npz").read_bytes()
    (folder / "000000.npz").write_bytes(content[: len(content) // 2])


def pickled(folder: Path) -> None:
    np.savez(folder / "000000.npz", actions=np.array([{}, {}], object))


def only_a_pickle(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    (folder / "expert.pkl").write_bytes(pickle.dumps([1]))


NAN = episode(5).observations.copy()
NAN[2, 0] = np.nan
EARLY = np.array([False, True, False, False, True])
FAULTS: list[tuple[Callable[[Path], object], str]] = [
    (replaced(observations=NAN), "000000.npz: observations must be finite; row 2 is not"),
    (replaced(rewards=np.full(5, np.inf)), "rewards must be finite; row 0 is not"),
    (replaced(observations=np.zeros((5, 2))), r"observations \(of shape \(5, 2\)\) must have 6 rows"),
    (replaced(observations=np.zeros((6, 3))), r"must have rows of the space's shape \(2,\)"),
    (replaced(actions=np.full(5, 3)), "actions must lie in the space Discrete; row 0 does not"),
    (replaced(actions=np.full(5, 0.5)), "actions must hold whole numbers"),
    (replaced(actions=np.array(["a"] * 5)), "actions .of dtype <U1. must hold numbers"),
    (replaced(terminations=EARLY), "ends before its last step: one file holds one episode"),
    (replaced(terminations=None), "has no array terminations"),
    (replaced(**{"infos.odd": np.zeros(4)}), r"infos.odd \(of shape \(4,\)\) must have 5 rows"),
    (replaced(actions=np.zeros((0,), np.int32)), "has no step"),
    (replaced(seed=np.zeros(3)), r"seed \(of shape \(3,\), dtype float64\) must be one whole number"),
    (cut, "is no .npz of arrays"),
    (pickled, "is no .npz of arrays, or cut short .Object arrays cannot be loaded"),
    (lambda folder: (folder / "000000.npz").write_bytes(b""), "is no .npz of arrays"),
    (only_a_pickle, "expert.pkl: pickled files can run any code and are not read; convert them"),
    (lambda folder: [file.unlink() for file in folder.iterdir()], "holds no episode"),
]


@pytest.mark.parametrize(("damage", "message"), FAULTS)
def test_faults_are_one_line(tmp_path: Path, damage: Callable[[Path], object], message: str) -> None:
    folder = written(tmp_path / "d", [episode(5)])
    damage(folder)
    with pytest.raises(DatasetFault, match=message) as caught:
        read_dataset(str(folder), SPEC)
    assert str(caught.value).startswith(str(folder))
    assert "\n" not in str(caught.value)


def test_a_file_that_promises_too_much_is_not_unpacked(tmp_path: Path, monkeypatch: Any) -> None:
    folder = written(tmp_path / "d", [episode(5)])
    monkeypatch.setattr("jaxrl.experience.demonstrations.episode.LARGEST_FILE", 1000)
    with pytest.raises(DatasetFault, match="unpacks to more than|larger than"):
        read_dataset(str(folder), SPEC)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: np.savez(f / "000001.npz"), "000001.npz: is not in manifest.json"),
        (lambda f: (f / "000000.npz").unlink(), "holds no episode|is in manifest.json and not there"),
        (lambda f: (f / "000000.npz").write_bytes(encode(episode(4))), "its digest is .*, in manifest.json"),
        (lambda f: (f / "manifest.json").write_text("[]"), "manifest.json: is no manifest"),
    ],
)
def test_verification_compares_with_the_manifest(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    folder = written(tmp_path / "d", [episode(5)])
    damage(folder)
    with pytest.raises(DatasetFault, match=message):
        read_dataset(str(folder), SPEC, verify=True)


def test_integers_that_the_space_cannot_hold_are_refused() -> None:
    spec = EnvSpec("E", Box.of(0, 255, (4,), np.uint8), Discrete(2))
    fits = dataclasses.replace(episode(5), observations=np.full((6, 4), 255))
    check_episode(dataclasses.replace(fits, actions=np.zeros(5, np.int64)), spec)
    with pytest.raises(EpisodeFault, match="observations must hold numbers of uint8"):
        check_episode(dataclasses.replace(fits, observations=np.full((6, 4), 300)), spec)


def test_masks_are_asked_for_where_the_environment_has_them(tmp_path: Path) -> None:
    spec: EnvSpec = dataclasses.replace(SPEC, has_action_mask=True)
    with pytest.raises(DatasetFault, match="has no action_masks"):
        read_dataset(str(written(tmp_path / "d", [episode(5)])), spec)


def test_a_file_of_hdf5_says_which_extra_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "d.hdf5").write_bytes(b"")
    with pytest.raises(DatasetFault, match="d.hdf5: an HDF5 file needs the package h5py: pip install"):
        read_dataset(str(tmp_path / "d.hdf5"), SPEC)
