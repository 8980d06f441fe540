"""Measurements and checks around training: speed, traces, memory, the machine."""
