"""Hand-written derivatives and kernels, where the ones of autodiff or XLA are slow."""
