"""Runs as they train: what their folders and this machine tell, and a screen of it."""
