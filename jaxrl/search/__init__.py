"""Search for values of a configuration's fields: `optimize`, and what it is made of."""

from jaxrl.search.dimension import Dimension
from jaxrl.search.optimization import SearchResult, optimize
from jaxrl.search.search_options import SearchOptions
from jaxrl.search.space import Space
from jaxrl.search.trials import Objective, StudyTrial

__all__ = ["Dimension", "Objective", "SearchOptions", "SearchResult", "Space", "StudyTrial", "optimize"]
