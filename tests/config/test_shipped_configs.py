"""Every shipped config resolves, and is the record of an experiment."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxrl.config import resolve
from jaxrl.config.files import load_config, shipped_file

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.py"))


# A second each to start Atari.
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(p, marks=pytest.mark.slow) if p.stem in ("dqn_atari", "r2d2_atari") else p
        for p in CONFIGS
    ],
    ids=lambda p: p.stem,
)
def test_shipped_config_resolves_on_one_and_two_devices(path: Path) -> None:
    config = load_config(str(path))
    suite = config.env.name.partition(":")[0]
    if suite in ("jaxmarl", "pgx", "xminigrid"):
        pytest.importorskip(suite)
    for device_count in (1, 2):
        assert resolve(config, device_count).device_count == device_count


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_shipped_config_is_an_experiment_record(path: Path) -> None:
    text = path.read_text()
    assert f"Command:  jaxrl train {path.stem}\n" in text
    assert "Hardware: " in text
    assert "Expected: " in text


def test_shipped_suite_goes_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = ROOT / "configs/suites/cartpole.yaml"
    assert Path(shipped_file("cartpole", "suites")).samefile(shipped)
    assert shipped_file("mine.yaml", "suites") == "mine.yaml"
    Path("cartpole").touch()
    assert shipped_file("cartpole", "suites") == "cartpole"  # a file of the user's own comes first


def test_gradients_of_the_memory_config_reach_the_cue() -> None:
    # With a shorter rollout one seed of five learns nothing.
    c = resolve(load_config(str(ROOT / "configs/ppo_memory.py")), 1)
    delay = int(c.env.name.partition("memory_length=")[2].rstrip(")"))
    assert c.ppo.rollout_length > delay + 1
    assert c.ppo.sequence_length in (0, c.ppo.rollout_length)
