"""Mazes of 13 x 13 cells that an agent sees a part of (docs/maze.md)."""

from __future__ import annotations

from jaxrl.envs.native.maze.maze import Maze as Maze
