"""Attention over a window: each sum written out in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.networks.kernels.windowed_attention import Biases, attend_sequence, sinusoids

N, H, K = 2, 2, 3


@pytest.mark.parametrize(("length", "memory"), [(2, 5), (4, 4), (11, 4), (5, 1), (69, 40)])
def test_every_step_sees_its_own_episode_within_the_window(length, memory):
    rng = np.random.default_rng(0)
    normal = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    total = memory + length
    q, k, v, r = (
        normal(length, N, H, K),
        normal(total, N, H, K),
        normal(total, N, H, K),
        normal(memory + 1, H, K),
    )
    biases = Biases(normal(H, K), normal(H, K))
    segment = np.concatenate([np.full((memory, N), -1), np.cumsum(rng.random((length, N)) < 0.2, axis=0)])
    segment[memory - 1 :, 1] = np.maximum(segment[memory - 1 :, 1], 0)  # one entry in the second memory
    expected = np.zeros((length, N, H, K))
    for t in range(length):
        for n in range(N):
            seen = [j for j in range(t, t + memory + 1) if segment[j, n] == segment[memory + t, n]]
            assert seen[-1] == memory + t
            for h in range(H):
                scores = [
                    (q[t, n, h] + biases.content[h]) @ k[j, n, h]
                    + (q[t, n, h] + biases.position[h]) @ r[memory + t - j, h]
                    for j in seen
                ]
                weights = np.exp(np.array(scores) / np.sqrt(K))
                expected[t, n, h] = weights @ v[seen, n, h] / weights.sum()
    arguments = jax.tree.map(jnp.asarray, (q, k, v, segment.astype(np.int32), r, biases))
    found = jax.jit(attend_sequence)(*arguments)
    np.testing.assert_allclose(found, expected.reshape(length, N, -1), atol=2e-6)


def test_positions_are_sines_and_cosines():
    found = sinusoids(3, 4)
    expected = [[np.sin(d), np.sin(d / 100), np.cos(d), np.cos(d / 100)] for d in range(3)]
    np.testing.assert_allclose(found, expected, atol=1e-6)
