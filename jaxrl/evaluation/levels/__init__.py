"""Solve rates over many levels, on average and in the worst of them (docs/levels.md)."""
