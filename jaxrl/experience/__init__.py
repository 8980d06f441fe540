"""Collecting experience: from an environment and a policy to a `Trajectory`."""
