"""Trained policies as functions of arrays, the files they are exported to, and what checks those."""

from jaxrl.evaluation.policy_function import PolicyFunction

__all__ = ["PolicyFunction"]
