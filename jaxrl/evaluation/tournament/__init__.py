"""Tournaments between policies and scripted players of a game of two."""

from __future__ import annotations
