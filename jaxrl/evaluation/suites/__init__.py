"""Evaluation suites: categories of environments, what counts as success in each, and videos of episodes."""
