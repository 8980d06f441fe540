"""Experiments: architectures trained on the same levels, with and without pretraining, and compared."""

from jaxrl.experiments.experiment import run
from jaxrl.experiments.options import ExperimentOptions

__all__ = ["ExperimentOptions", "run"]
