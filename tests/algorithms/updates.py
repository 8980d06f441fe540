"""Helpers of tests of updates on one trajectory; `rolled` and `updated` in conftest.py give them one."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.compiled_programs import with_learner


def with_numbers(state, **numbers):
    values = {name: jnp.float32(x) for name, x in numbers.items()}
    return with_learner(state, hyperparams=state.learner.hyperparams.replace(**values))


def assert_same_update(got, expected):
    np.testing.assert_allclose(
        *(
            np.concatenate([x.ravel() for x in jax.tree.leaves(s.learner.policy.params)])
            for s in (got[0], expected[0])
        ),
        atol=2e-5,
    )
    for name, x in expected[1].items():
        np.testing.assert_allclose(got[1][name], x, rtol=1e-3, atol=1e-5, err_msg=name)
