"""Experiments: architectures trained on the same levels, with and without pretraining, and compared."""
