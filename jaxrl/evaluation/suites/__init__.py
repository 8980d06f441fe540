"""Evaluation suites: categories of environments, what counts as success in each, and films of episodes."""
