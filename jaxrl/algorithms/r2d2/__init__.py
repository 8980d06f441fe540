"""Recurrent replay distributed DQN."""
