"""Tournaments between policies and scripted players of a two-player game."""
