"""A platform game on tiles: run, jump, kick off walls, avoid mines, open the exit (docs/platformer.md)."""

from __future__ import annotations

from jaxrl.envs.native.platformer.platformer import Platformer as Platformer
