"""Runs side by side: which belong together, what their returns say, and a report of it."""

from jaxrl.experiments.comparison.results import Options, compare
from jaxrl.experiments.comparison.variants import Variant, problems, variants_of

__all__ = ["Options", "Variant", "compare", "problems", "variants_of"]
