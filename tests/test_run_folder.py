"""The folder of a run: what is written where, and what is said when it is no run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jaxrl.config import ConfigError, default_config, resolve
from jaxrl.run_folder import RunFolder


def test_config_round_trips(tmp_path: Path) -> None:
    raw = default_config()
    raw.env.num_envs = 32
    raw.stop["return"] = 475.0
    config = resolve(raw, device_count=2)
    folder = RunFolder(str(tmp_path / "a" / "run"))
    folder.create()
    folder.write_config(config)
    assert folder.read_config() == config


def test_creating_twice_keeps_what_is_there(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path))
    folder.write_summary({"steps": 3})
    folder.create()
    assert json.loads((tmp_path / "summary.json").read_text()) == {"steps": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]  # the write test leaves nothing


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="`--workdir` .*file/run.* cannot be written"):
        RunFolder(str(tmp_path / "file" / "run")).create()


def test_folder_without_config_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no config.json: is it a run folder"):
        RunFolder(str(tmp_path)).read_config()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"seed": "x"}', '{"speed": 1}'])
def test_spoiled_config_is_answered_with_a_config_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError):
        RunFolder(str(tmp_path)).read_config()


def test_evaluations_have_a_folder(tmp_path: Path) -> None:
    written = RunFolder(str(tmp_path)).write_evaluation("step-5-greedy-10", {"mean": 1.5})
    assert written == tmp_path / "evaluations" / "step-5-greedy-10.json"
    assert json.loads(written.read_text()) == {"mean": 1.5}
