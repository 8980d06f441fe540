"""The linear recurrence and its hand-written backward pass, against autodiff of a plain loop and numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.networks.kernels.linear_recurrence import by_platform, linear_recurrence, parallel, sequential

L, N, F, H = 9, 5, 3, 4
# (parts of a number, whether a is the same at all steps)
KINDS = {"real": (1, False), "complex": (2, False), "constant": (2, True)}
FORMS = {"by platform": by_platform, "sequential": sequential, "parallel": parallel}


def problem(kind, length=L):
    """(a, b, h, reset) with resets inside, at the first and at the last step."""
    parts, constant = KINDS[kind]
    rng = np.random.default_rng(0)
    normal = lambda *shape: tuple(  # noqa: E731
        jnp.asarray(rng.normal(size=shape) * 0.7, jnp.float32) for _ in range(parts)
    )
    reset = rng.random((length, N)) < 0.3
    reset[0, 0] = reset[-1, 1] = True
    reset[:, 2] = False
    a = normal(1, 1, H) if constant else normal(length, N, H)
    return a, normal(length, N, H), normal(N, H), jnp.asarray(reset)


def as_complex(x):
    return np.asarray(x[0], np.float64) + (1j * np.asarray(x[1], np.float64) if len(x) == 2 else 0)


def by_hand(a, b, h, reset):
    """Environment by environment, in numpy's double precision."""
    a, b, before, out = as_complex(a), as_complex(b), as_complex(h), []
    a = np.broadcast_to(a, b.shape)
    for t in range(len(b)):
        after = np.empty_like(before)
        for n in range(N):
            after[n] = b[t, n] if reset[t, n] else a[t, n] * before[n] + b[t, n]
        out.append(after)
        before = after
    return np.stack(out)


def plain_scan(a, b, h, reset):
    """The same as anyone would write it, in complex numbers, for JAX to differentiate."""
    a, b, h = (jax.lax.complex(x[0], x[1] if len(x) == 2 else jnp.zeros_like(x[0])) for x in (a, b, h))

    def step(h, xs):
        a_t, b_t, reset_t = xs
        h = a_t * jnp.where(reset_t[:, None], 0.0, h) + b_t
        return h, h

    found = jax.lax.scan(step, h, (jnp.broadcast_to(a, b.shape), b, reset))[1]
    return found.real, found.imag


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, L])
def test_every_form_equals_numpy(form, kind, length):
    arguments = problem(kind, length)
    found = jax.jit(linear_recurrence, static_argnums=4)(*arguments, FORMS[form])
    np.testing.assert_allclose(as_complex(found), by_hand(*arguments), rtol=1e-5, atol=1e-5)
    assert {x.dtype for x in found} == {jnp.dtype("float32")}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, L])
def test_gradients_of_every_form_equal_autodiff_of_a_plain_scan(kind, length):
    a, b, h, reset = problem(kind, length)
    rng = np.random.default_rng(1)
    weights = [jnp.asarray(rng.normal(size=(length, N, H)), jnp.float32) for _ in b]

    def loss(run):
        def value(a, b, h):
            # Every part of every step counts, each with a weight of its own.
            return sum((w * x).sum() for w, x in zip(weights, run(a, b, h, reset), strict=False))

        return jax.jit(jax.value_and_grad(value, argnums=(0, 1, 2)))

    expected = loss(plain_scan)(a, b, h)
    for form in FORMS.values():
        found = loss(lambda a, b, h, reset: linear_recurrence(a, b, h, reset, form))(a, b, h)  # noqa: B023
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), found, expected)
    assert all(float(jnp.abs(x).max()) > 0.1 for x in jax.tree.leaves(expected[1]))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_nothing_of_a_finished_episode_leaks(form):
    # correctness 5: neither numbers, nor NaN and infinity, which a product with zero would let pass; nor
    # gradients, in the other direction.
    a, b, h, _ = problem("complex")
    reset = jnp.zeros((L, N), bool).at[4, :3].set(True)
    run = jax.jit(lambda *arguments: linear_recurrence(*arguments, FORMS[form]))
    clean = run(a, b, h, reset)

    def spoiled(x):
        return tuple(part.at[1, 0].set(jnp.nan).at[2, 1].set(jnp.inf) for part in x)

    dirty = run(spoiled(a), spoiled(b), tuple(part.at[2].set(jnp.nan) for part in h), reset)
    for x, y in zip(dirty, clean, strict=True):
        np.testing.assert_array_equal(x[4:], y[4:])
        np.testing.assert_array_equal(x[:, 3:], y[:, 3:])
        assert not np.isfinite(x[3, :3]).any()

    def late(a, b, h):
        return sum(x[4:].sum() for x in run(a, b, h, reset))

    for x in jax.tree.leaves(jax.jit(jax.grad(late, argnums=(0, 1)))(a, b, h)):
        np.testing.assert_array_equal(x[:4, :3], 0.0)
        assert (jnp.abs(x[:4, 3:]).sum(axis=(0, 2)) > 0).all()
    for x in jax.grad(late, argnums=2)(a, b, h):
        np.testing.assert_array_equal(x[:3], 0.0)
        assert (jnp.abs(x[3:]).sum(axis=1) > 0).all()


@pytest.mark.parametrize("form", FORMS)
def test_gradients_of_the_next_episode_survive_one_that_diverged(form):
    a, b, h, _ = problem("real")
    reset = jnp.zeros((L, N), bool).at[4, 0].set(True)

    def late(a, b):
        return linear_recurrence(a, b, h, reset, FORMS[form])[0][4:, 0].sum()

    gradient = jax.jit(jax.grad(late, argnums=(0, 1)))
    clean = gradient(a, b)
    dirty = gradient(tuple(x.at[2, 0].set(jnp.nan) for x in a), tuple(x.at[2, 0].set(jnp.inf) for x in b))
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[4:], y[4:]), dirty, clean)


def test_one_loop_forwards_and_one_backwards_and_none_for_a_single_step():
    # What autodiff keeps of a scan, and the loop around a single step, are what this is written against.
    def loops(length):
        a, b, h, reset = problem("real", length)
        loss = lambda a, b, h: linear_recurrence(a, b, h, reset)[0].sum()  # noqa: E731
        return str(jax.jit(jax.grad(loss)).lower(a, b, h).as_text()).count("stablehlo.while")

    assert [loops(1), loops(L)] == [0, 2]
