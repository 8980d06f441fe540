"""Runtimes that produce a `Trajectory`."""
