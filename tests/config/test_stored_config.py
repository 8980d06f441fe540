"""The resolved configuration as config.json: there and back, of older versions, with unknown fields."""

from __future__ import annotations

import json

import pytest

from jaxrl.config import ConfigError, default_config, from_json, resolve, to_json
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


def test_json_with_an_unknown_field_is_refused() -> None:
    stored = to_json(resolve(default_config(), 1))
    stored["ppo"]["learning_rat"] = 1.0
    with pytest.raises(ConfigError, match="`ppo.learning_rat`"):
        from_json(stored)
