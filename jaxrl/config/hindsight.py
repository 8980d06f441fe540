"""Names of hindsight, for every section that offers it."""

from __future__ import annotations

STRATEGIES = ("future", "final", "episode", "random")
