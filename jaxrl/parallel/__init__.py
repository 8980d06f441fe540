"""Devices, processes, signals, and how programs are compiled for them."""
