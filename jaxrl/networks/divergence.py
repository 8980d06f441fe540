"""Kullback-Leibler divergence between two distributions of actions of one kind."""

from __future__ import annotations

from typing import Any

import chex
import jax
import jax.numpy as jnp

from jaxrl.networks.distributions import Categorical, MultiCategorical
from jaxrl.networks.gaussian_mixture import GaussianMixture, mixture_divergence
from jaxrl.networks.gaussians import Gaussian, TanhGaussian
from jaxrl.networks.mixed import ProductDistribution
from jaxrl.types import Array


def kl_divergence(p: Any, q: Any) -> Array:
    """float32[...]: KL(p || q) = E_p[log p(a) - log q(a)] in nats, summed over components.

    It is exact, but of mixtures an upper bound (`mixture_divergence`). Actions that are masked in both add 0.

    Args:
      p, q: distributions [...] of the same class, as one head gives them.
    """
    if type(p) is not type(q):
        raise TypeError(f"{type(p).__name__} and {type(q).__name__} have no divergence")
    if isinstance(p, Categorical):
        return _categorical(p.logits, q.logits)
    if isinstance(p, MultiCategorical):
        ends = [sum(p.nvec[:i]) for i in range(1, len(p.nvec))]
        parts = zip(jnp.split(p.logits, ends, axis=-1), jnp.split(q.logits, ends, axis=-1), strict=True)
        return jnp.sum(jnp.stack([_categorical(a, b) for a, b in parts]), axis=0)
    if isinstance(p, Gaussian | TanhGaussian):
        # A bijection such as tanh changes no divergence.
        return _gaussian(p.mean, p.log_std, q.mean, q.log_std)
    if isinstance(p, GaussianMixture):
        return mixture_divergence(p, q)
    if isinstance(p, ProductDistribution):
        found = [kl_divergence(a, b) for a, b in zip(p.parts, q.parts, strict=True)]
        return jnp.sum(jnp.stack(found), axis=0)
    raise TypeError(f"{type(p).__name__} has no divergence")


def _categorical(p: Array, q: Array) -> Array:
    """sum_i p_i (log p_i - log q_i), of logits [..., A]."""
    chex.assert_equal_shape([p, q])
    log_p, log_q = (jax.nn.log_softmax(x.astype(jnp.float32), axis=-1) for x in (p, q))
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)


def _gaussian(mean_p: Array, log_std_p: Array, mean_q: Array, log_std_q: Array) -> Array:
    """sum_d log(s_q / s_p) + (s_p^2 + (m_p - m_q)^2) / (2 s_q^2) - 1/2, of [..., D]."""
    chex.assert_equal_shape([mean_p, mean_q])
    mean_p, log_std_p, mean_q, log_std_q = (
        x.astype(jnp.float32) for x in (mean_p, log_std_p, mean_q, log_std_q)
    )
    squares = jnp.exp(2.0 * (log_std_p - log_std_q)) + jnp.square((mean_p - mean_q) * jnp.exp(-log_std_q))
    return jnp.sum(log_std_q - log_std_p + 0.5 * (squares - 1.0), axis=-1)
