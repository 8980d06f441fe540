"""A robot that drives to a goal in a room with obstacles; some move (docs/navigation.md)."""

from __future__ import annotations

from jaxrl.envs.native.navigation.navigation import Navigation as Navigation
from jaxrl.envs.native.navigation.room import NavigationParams as NavigationParams
