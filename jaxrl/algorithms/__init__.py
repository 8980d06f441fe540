"""Learning from trajectories: what the algorithms share, and a package for each."""
