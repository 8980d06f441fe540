"""Levels by what can be learnt from them: prioritised level replay and its relatives (docs/levels.md)."""
