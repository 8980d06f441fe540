"""Search for values of a configuration's fields: `optimize`, and what it is made of."""

from jaxrl.experiments.search.optimization import SearchResult, optimize
from jaxrl.experiments.search.options import SearchOptions
from jaxrl.experiments.search.space import Dimension, Space
from jaxrl.experiments.search.trials import Objective, StudyTrial

__all__ = ["Dimension", "Objective", "SearchOptions", "SearchResult", "Space", "StudyTrial", "optimize"]
