"""Collecting from environments on the host (Sebulba in Hessel et al. 2021)."""
