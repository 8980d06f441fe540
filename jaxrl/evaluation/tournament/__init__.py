"""Tournaments between policies and scripted players of a two-player game."""

from __future__ import annotations
