"""Which class learns: a built-in one's, or one from outside, which must be an algorithm."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from jaxrl.algorithms import Algorithm, hyperparameters
from jaxrl.algorithms.registry import algorithm_class
from jaxrl.config import ConfigError, PPOConfig, check_config, default_config
from jaxrl.config.configuration import BUILT_IN


class Half(Algorithm):
    """Has a section, and nothing that learns."""

    name, config_section = "ppo", PPOConfig


class Elsewhere:
    """No algorithm."""

    name, config_section = "ppo", PPOConfig


Whole = type(
    "Whole",
    (Half,),
    dict.fromkeys(Algorithm.__abstractmethods__) | {"hyperparameters": classmethod(lambda cls, c: c.learner)},
)


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes this file a module that a configuration can name, and returns its name."""
    module = ModuleType("algorithms_of_this_test")
    vars(module).update(Half=Half, Elsewhere=Elsewhere, Whole=Whole)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.__name__


@pytest.mark.parametrize("algorithm", BUILT_IN)
def test_every_section_has_its_class(algorithm: str) -> None:
    assert issubclass(algorithm_class(check_config(default_config(algorithm))), Algorithm)


def test_class_from_outside(named: str) -> None:
    config = check_config(default_config(f"{named}:Whole"))
    assert algorithm_class(config) is Whole
    assert hyperparameters(config) is config.learner


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Half", "Half lacks .*learn.*, hyperparams_type, see jaxrl.algorithms.Algorithm"),
        ("Elsewhere", "must be a class that derives from jaxrl.algorithms.Algorithm"),
    ],
)
def test_what_is_no_algorithm_is_refused_in_one_line(name: str, message: str, named: str) -> None:
    config = check_config(default_config(f"{named}:{name}"))
    with pytest.raises(ConfigError, match=message) as caught:
        algorithm_class(config)
    assert "\n" not in str(caught.value)
