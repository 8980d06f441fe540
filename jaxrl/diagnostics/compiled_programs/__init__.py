"""Readers of programs that were traced or compiled: what they compute, exchange and hold."""
