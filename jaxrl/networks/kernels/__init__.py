"""Derivatives and kernels written out, where what autodiff or XLA makes of the plain form is slow."""
