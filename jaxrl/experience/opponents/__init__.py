"""Opponents in two-player games: the policy itself and a pool of its past."""

from __future__ import annotations

from jaxrl.experience.opponents.matches import Matches as Matches
from jaxrl.experience.opponents.opponents import Opponents as Opponents
from jaxrl.experience.opponents.opponents import build as build
