"""Layers on graphs, and the encoder of graphs that are fixed for each level."""
