"""The resolved configuration as config.json: there and back, of older versions, with unknown fields."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jaxrl.config import ConfigError, default_config, from_json, resolve, to_json
from jaxrl.config.files import load_config
from jaxrl.config.overrides import override
from tests.config.test_config import changed


def test_json_round_trip() -> None:
    config = changed(
        stop__seconds=60.0,
        ppo__target_kl=0.02,
        network__hidden_sizes=(32, 16),
        env__wrappers=("select_observation(indices=(0, 2))",),
    )
    config.stop["return"] = 475.0
    resolved = resolve(config, 2)
    stored = json.loads(json.dumps(to_json(resolved)))
    assert stored["stop"]["return"] == 475.0  # the name that users write, not the attribute's
    assert stored["derived"]["num_iterations"] == resolved.num_iterations
    assert from_json(stored) == resolved


def test_json_of_an_older_version_takes_defaults_for_newer_fields() -> None:
    stored = to_json(resolve(default_config(), 1))
    del stored["ppo"]["warmup_updates"]
    assert from_json(stored).ppo.warmup_updates == 0


FORMER = {
    "dqn.priority_beta_draws": 100_000,
    "r2d2.priority_beta_draws": 100_000,
    "r2d2.priority_eta": 0.9,
    "sac.priority_beta_draws": 100_000,
    "sac.priority_eta": 0.9,
}


@pytest.mark.parametrize("name", FORMER)
def test_a_former_field_is_read_with_the_value_that_all_runs_have(name: str, tmp_path: Path) -> None:
    section, _, field = name.partition(".")
    stored = to_json(resolve(default_config(section), 1))
    assert field not in stored[section]
    expected = from_json(stored)
    stored[section][field] = FORMER[name]
    assert from_json(stored) == expected
    file = tmp_path / "stored.yaml"
    file.write_text(f"algorithm: {section}\n{name}: {FORMER[name]}\n")
    assert load_config(str(file)) == default_config(section)
    stored[section][field] = 0.5
    rule = rf"since it has the value {FORMER[name]} in every run$"
    with pytest.raises(ConfigError, match=rf"^`{name}` is no field of the configuration, {rule}"):
        from_json(stored)
    with pytest.raises(ConfigError, match=rf"^`config.{name}` is no field, {rule}"):
        override(default_config(section), name, "0.5")


def test_json_with_an_unknown_field_is_refused() -> None:
    stored = to_json(resolve(default_config(), 1))
    stored["ppo"]["learning_rat"] = 1.0
    with pytest.raises(ConfigError, match="`ppo.learning_rat`"):
        from_json(stored)
