"""Devices, processes and signals, and how programs are compiled for them."""
