"""Files of D4RL's layout: where episodes begin and end, what is refused in one line, and the commands."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl.commands import verify_data
from jaxrl.envs.base import Box, Dict
from jaxrl.experience.demonstrations import DatasetFault, read_dataset
from tests.commands.refusals import refused
from tests.experience.demonstrations.samples import SPEC

h5py = pytest.importorskip("h5py")


def rows(**changes: Any) -> dict[str, Any]:
    """Seven rows: 3 of an episode that terminates, 2 of one that a time limit ends, and 2 of another."""
    count = np.arange(7)
    found = {
        "observations": np.stack([count / 10, -count / 10], axis=1),
        "actions": count % 3,
        "rewards": count.astype(np.float32),
        "terminals": count == 2,
        "timeouts": count == 4,
    }
    return {name: x for name, x in (found | changes).items() if x is not None}


def written(file: Path, arrays: Mapping[str, Any]) -> str:
    with h5py.File(file, "w") as stored:
        for name, x in arrays.items():
            stored[name] = x
    return str(file)


def test_episodes_end_where_the_flags_say(tmp_path: Path) -> None:
    more = {"metadata/algorithm": "SAC", "infos/qpos": np.zeros(3)}  # of other lengths: not read
    found = read_dataset(written(tmp_path / "d.hdf5", rows() | more), SPEC, verify=True)
    one, two, last = found.episodes
    assert [len(e) for e in found.episodes] == [3, 2, 2]
    assert [e.episode_return for e in found.episodes] == [0 + 1 + 2, 3 + 4, 5 + 6]
    assert [e.actions.tolist() for e in found.episodes] == [[0, 1, 2], [0, 1], [2, 0]]
    ends = [(bool(e.terminations[-1]), bool(e.truncations[-1])) for e in found.episodes]
    assert ends == [(True, False), (False, True), (False, False)]
    # The observation after the last action is not known: the last one stands there again.
    np.testing.assert_allclose(one.observations[:, 0], [0.0, 0.1, 0.2, 0.2])
    np.testing.assert_allclose(two.observations[:, 0], [0.3, 0.4, 0.4])
    np.testing.assert_allclose(last.observations[:, 1], [-0.5, -0.6, -0.6])
    assert found.digest != read_dataset(written(tmp_path / "e.h5", rows(rewards=np.ones(7))), SPEC).digest


def test_an_end_at_the_last_row_begins_no_other_episode(tmp_path: Path) -> None:
    file = written(tmp_path / "d.hdf5", rows(timeouts=np.isin(np.arange(7), (4, 6))))
    assert [len(e) for e in read_dataset(file, SPEC).episodes] == [3, 2, 2]


def test_next_observations_say_what_followed(tmp_path: Path) -> None:
    after = rows()["observations"] + 0.05
    column = {"rewards": np.ones((7, 1)), "terminals": (np.arange(7) == 2)[:, None].astype(np.uint8)}
    file = written(tmp_path / "d.hdf5", rows(next_observations=after, **column))
    one, *_ = read_dataset(file, SPEC).episodes
    np.testing.assert_allclose(one.observations[:, 0], [0.0, 0.1, 0.2, 0.25])
    assert (one.rewards.shape, one.terminations.tolist()) == ((3,), [False, False, True])


def test_groups_are_dicts(tmp_path: Path) -> None:
    space = Dict((("own", Box.of(-1.0, 1.0, (2,))), ("time", Box.of(0.0, 9.0, (1,)))))
    spec = dataclasses.replace(SPEC, observation_space=space)
    parts = {"observations/own": rows()["observations"], "observations/time": np.ones((7, 1))}
    file = written(tmp_path / "d.hdf5", rows(observations=None) | parts)
    one, *_ = read_dataset(file, spec).episodes
    assert {name: x.shape for name, x in one.observations.items()} == {"own": (4, 2), "time": (4, 1)}
    with pytest.raises(DatasetFault, match="observations; it has observations.own, observations.time$"):
        read_dataset(file, SPEC)


NAN = np.where(np.arange(14).reshape(7, 2) == 8, np.nan, 0.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timeouts": None}, "has no array timeouts: D4RL's are observations, actions, rewards, terminals"),
        ({"observations": None}, "has no array observations"),
        ({"rewards": np.ones(6)}, r"rewards \(of shape \(6,\)\) must have as many rows as actions"),
        ({"actions": 3}, r"\(of shape \(\)\) must have as many rows as actions"),
        ({"rewards": np.ones((7, 2))}, r"rewards \(of shape \(7, 2\)\) must have one number a row"),
        ({"terminals": np.full(7, 0.5)}, "terminals must hold 0 and 1"),
        ({"terminals": np.full(7, np.nan)}, "terminals must hold 0 and 1"),
        ({"actions": np.array([b"left"] * 7)}, "actions .of dtype .* must hold numbers"),
        (
            {"actions": np.arange(7)},
            "episode 1, from row 3 on: actions must lie in the space Discrete",
        ),
        ({"observations": NAN}, "episode 1, from row 3 on: observations must be finite; row 1 is not"),
        ({"observations": np.ones((7, 3))}, "episode 0, .* must have rows of the space's shape"),
        ({"next_observations": np.ones((7, 3))}, "next_observations .* must have the shape"),
        ({name: np.zeros((0, 2)) for name in rows()}, "holds no episode"),
    ],
)
def test_faults_are_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    file = written(tmp_path / "d.hdf5", rows(**changes))
    with pytest.raises(DatasetFault, match=message) as caught:
        read_dataset(file, SPEC)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


def test_a_cut_file_and_what_is_none(tmp_path: Path) -> None:
    file = Path(written(tmp_path / "d.hdf5", rows()))
    for content in (file.read_bytes()[:500], b"", b"\x80\x04cos\nsystem\n"):
        file.write_bytes(content)
        with pytest.raises(DatasetFault, match="is no HDF5 file, or cut short") as caught:
            read_dataset(str(file), SPEC)
        assert "\n" not in str(caught.value)
    with pytest.raises(DatasetFault, match="is no folder of episodes"):
        read_dataset(str(tmp_path / "nowhere.hdf5"), SPEC)


def test_other_files_are_not_read(tmp_path: Path) -> None:
    """An array may lie outside of the file that names it, in any file of this machine."""
    secret = tmp_path / "secret"
    secret.write_bytes(np.arange(7.0).tobytes())
    with h5py.File(written(tmp_path / "d.hdf5", rows(rewards=None)), "a") as stored:
        stored.create_dataset("rewards", (7,), "f8", external=[(str(secret), 0, 56)])
    with pytest.raises(DatasetFault, match="rewards lies in another file, which is not read"):
        read_dataset(str(tmp_path / "d.hdf5"), SPEC)
    written(tmp_path / "other.hdf5", {"rewards": np.ones(7)})
    with h5py.File(written(tmp_path / "e.hdf5", rows(rewards=None)), "a") as stored:
        stored["rewards"] = h5py.ExternalLink(str(tmp_path / "other.hdf5"), "rewards")
    with pytest.raises(DatasetFault, match="has no array rewards"):
        read_dataset(str(tmp_path / "e.hdf5"), SPEC)


def test_verify_data_reads_it_for_an_environment(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    signs = np.where(np.arange(7) % 2, 1.0, -1.0)
    arrays = rows(observations=signs[:, None], actions=np.arange(7) % 2, terminals=np.ones(7))
    file = written(tmp_path / "d.hdf5", arrays)
    assert verify_data.main(["jaxrl verify-data", f"--data={file}", "--env=jaxrl:ProbePolicy"]) == 0
    out = capfd.readouterr().out
    assert "episodes  7, 7 steps" in out
    assert "players   d4rl" in out
    assert "`--env` is missing" in refused(capfd, "verify-data", f"--data={file}")
    assert "is no folder" in refused(capfd, "verify-data", f"--data={tmp_path}/no.hdf5")


def test_ends_that_are_not_marked_are_noted(tmp_path: Path) -> None:
    found = read_dataset(written(tmp_path / "d.hdf5", rows()), SPEC)
    assert found.summary()["unmarked_ends"] == 1
    marked = rows(timeouts=np.isin(np.arange(7), (4, 6)))
    assert "unmarked_ends" not in read_dataset(written(tmp_path / "e.hdf5", marked), SPEC).summary()
