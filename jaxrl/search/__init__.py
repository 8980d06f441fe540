"""Search for values of a configuration's fields: `optimize`, and what it is made of."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxrl.search.dimension import Dimension
    from jaxrl.search.optimization import SearchResult, optimize
    from jaxrl.search.search_options import SearchOptions
    from jaxrl.search.space import Space
    from jaxrl.search.trials import Objective, StudyTrial

__all__ = ["Dimension", "Objective", "SearchOptions", "SearchResult", "Space", "StudyTrial", "optimize"]


def __getattr__(name: str) -> Any:
    # Not before it is used: flags need the options alone.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    places = ("search_options", "dimension", "space", "trials", "optimization")
    found = (vars(importlib.import_module(f"{__name__}.{place}")) for place in places)
    return next(names[name] for names in found if name in names)
