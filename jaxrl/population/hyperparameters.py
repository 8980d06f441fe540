"""The numbers in which the members of a population may differ."""

from __future__ import annotations

import dataclasses

import jax
from ml_collections import ConfigDict

from jaxrl.config import check_config
from jaxrl.programs.make_train import hyperparameters


def numeric_hyperparameters(config: ConfigDict) -> list[str]:
    """Their names as fields, such as "ppo.learning_rate"; those that are None in `config` are left out."""
    checked = check_config(config)
    # Only their shapes: computing one would start JAX's devices, which the trials of a search need.
    shapes = jax.eval_shape(lambda: hyperparameters(checked))
    names = [field.name for field in dataclasses.fields(shapes)]
    return [f"{checked.section}.{name}" for name in names if getattr(checked.learner, name) is not None]
