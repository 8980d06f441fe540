"""Evaluation of trained policies: whole episodes, suites of environments, videos."""
