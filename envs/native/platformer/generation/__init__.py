"""Levels generated from seeds, each proven solvable, in folders with a manifest (`jaxrl prepare-data`)."""
