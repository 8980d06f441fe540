"""A printed configuration can be trained as it is; every field is listed with its meaning."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxrl.config import check_config, declared_fields, default_config
from jaxrl.config.configuration import BUILT_IN
from jaxrl.config.files import load_config, shipped_names
from jaxrl.config.listing import config_file, field_list


@pytest.mark.parametrize("name", shipped_names())
def test_printed_config_is_the_same_config(name: str, tmp_path: Path) -> None:
    config = load_config(name)
    config.seed = 7
    config.ppo.target_kl = 0.02
    config.log.writers = ("csv",)
    config.log.name = 'it\'s a "name" with \\ and \n in it'
    checked = check_config(config)
    file = tmp_path / "printed.py"
    file.write_text(config_file(checked))
    assert check_config(load_config(file)) == checked


@pytest.mark.parametrize("algorithm", BUILT_IN)
def test_printed_config_says_every_field_and_its_meaning(algorithm: str) -> None:
    text = config_file(check_config(default_config(algorithm)))
    assert max(map(len, text.splitlines())) <= 110
    assert '    c.stop["return"] = None  # mean return of an evaluation' in text
    assert "    c.storage.sync_every_steps = 500_000  # environment steps" in text
    assert '    c.init_names = ("*",)  # patterns' in text
    words = " ".join(text.replace("#", " ").split())
    others = tuple(f"{name}." for name in BUILT_IN.keys() - {algorithm})
    said = [field for name, field in declared_fields().items() if not name.startswith(others)]
    assert {f"{algorithm}.learning_rate", "seed"} <= {field.name for field in said}
    for field in said:
        assert field.help in words


def test_list_of_fields_says_type_rule_default_and_meaning() -> None:
    text = field_list()
    assert max(map(len, text.splitlines())) <= 100
    words = " ".join(text.split())
    for name, field in declared_fields().items():
        assert f"{name} {field.help} (" in words
    assert "ppo.gamma discount factor (a finite number; must lie between 0 and 1; default: 0.99)" in words
    assert "must lie between 0 and 4294967295; default: 0; a resumed run keeps it)" in words  # the seed
    assert "env: The environment. env.name" in words
    assert "evaluations and checkpoints; none: no limit (a finite number or none; must be above 0" in words
