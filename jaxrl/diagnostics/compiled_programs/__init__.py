"""Readers of compiled programs: their operations, exchanges and memory."""
