"""Metrics for people: writers and displays."""
