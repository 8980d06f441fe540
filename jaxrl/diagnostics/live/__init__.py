"""Runs as they train: their folders, the load of this machine, and a screen of both."""
