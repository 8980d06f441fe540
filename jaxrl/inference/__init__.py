"""Trained policies as functions of arrays, their export to files, and the check of these files."""

from jaxrl.evaluation.policy_function import PolicyFunction

__all__ = ["PolicyFunction"]
