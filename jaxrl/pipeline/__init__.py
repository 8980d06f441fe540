"""Pipelines: stages from data to a deployed policy, each a few commands of `jaxrl` run as child processes.

A stage is done when its commands are, and is repeated when what it read has changed. Only gates and the
report are computed here.
"""
