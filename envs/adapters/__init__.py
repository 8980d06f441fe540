"""Adapters: one file per suite, each with `names()` and `make(name, **arguments)`."""
