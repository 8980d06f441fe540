"""`check_core`: every built-in core passes, and each mistake is named in one line."""

import dataclasses
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

import jaxrl
from jaxrl.config import NetworkConfig
from jaxrl.networks import CORES, Core, gated_transformer
from jaxrl.networks.cores import build_core

# Step by step, scanned in parallel, attention, and a memory of matrices. The others are written with the
# functions of these, and have tests of their equations beside this file.
FAST, SLOW = ("none",), ("mingru", "lstm", "s5", "gtrxl", "gated_delta")


def by_cost(name):
    mark = pytest.mark.slow if name in SLOW else pytest.mark.long
    return pytest.param(name, marks=() if name in FAST else mark)


@pytest.mark.parametrize("name", [by_cost(name) for name in CORES.names()])
def test_built_in_cores_pass(name):
    jaxrl.check_core(name)


@pytest.mark.slow
def test_gtrxl_passes_where_a_sequence_has_several_parts(monkeypatch):
    monkeypatch.setattr(gated_transformer, "_AT_ONCE", 1)  # as many steps as the memory has, so three parts
    jaxrl.check_core("gtrxl")


# A core takes and gives any size: test_built_in_cores_pass. Layers of gtrxl: tests/inference/test_export.py.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mingru", pytest.param("lstm", marks=pytest.mark.long)])
def test_stacks_of_cores_pass(name):
    network = dataclasses.replace(NetworkConfig(), core=name, core_size=8, core_layers=2, memory_length=3)
    jaxrl.check_core(build_core(network))


class Average(Core):
    """A sound core: an average that fades. Those below break it in one place each."""

    waits_for_the_carry: ClassVar[bool] = False
    size: int
    dtype: jnp.dtype = jnp.float32

    def initial_carry(self, n):
        return {"h": jnp.zeros((n, self.size), jnp.float32)}

    @nn.compact
    def __call__(self, x, carry, reset):
        x = nn.Dense(self.size, dtype=self.dtype)(x).astype(jnp.float32)
        carry = self.before(carry)

        def step(h, xs):
            x, reset = xs
            h = 0.9 * self.forget(h, reset[:, None]) + 0.1 * self.seen(x)
            return h, h

        h, y = jax.lax.scan(step, carry["h"], (x, reset))
        return self.result(y), {"h": self.kept(h, reset)}

    def before(self, carry):
        return carry

    def forget(self, h, reset):
        return jnp.where(reset, 0.0, h)

    def seen(self, x):
        return x

    def result(self, y):
        return y.astype(self.dtype)

    def kept(self, h, reset):
        return h


def broken(name, **methods):
    return type(name, (Average,), methods | {"__module__": __name__, "__annotations__": {}})


@jax.custom_vjp
def wrong(y):
    return y


# The gradient of a sequence is not that of its steps.
wrong.defvjp(lambda y: (y, None), lambda _, dy: (dy * jnp.arange(1, len(dy) + 1.0)[:, None, None],))

BROKEN = {
    "an episode reach the next one, after": broken("Unforgetful", forget=lambda self, h, reset: h),
    "lets NaN of an episode": broken(
        "Multiplied", forget=lambda self, h, reset: h * (1.0 - reset.astype(h.dtype))
    ),
    "see another one": broken("Mixed", seen=lambda self, x: x + 0.1 * x.mean(axis=0, keepdims=True)),
    "at step 0 of a sequence": broken("Centred", result=lambda self, y: y - y.mean(axis=0, keepdims=True)),
    "another carry after a sequence": broken(
        "Shifted", kept=lambda self, h, reset: h + (len(reset) > 1) / 10
    ),
    "gradients of its parameters": broken("Underived", result=lambda self, y: wrong(y)),
    "returns float32 with dtype bfloat16": broken("Wide", result=lambda self, y: y),
    "`initial_carry` returns ['h'] of bfloat16": broken(
        "Narrow", initial_carry=lambda self, n: {"h": jnp.zeros((n, self.size), jnp.bfloat16)}
    ),
    "[16, 3] for 3 environments": broken(
        "Turned", initial_carry=lambda self, n: {"h": jnp.zeros((self.size, n))}
    ),
    "numbers other than 0": broken("Full", initial_carry=lambda self, n: {"h": jnp.ones((n, self.size))}),
    "['h'] float32[3, 1], but": broken("Cut", kept=lambda self, h, reset: h[:, :1]),
    "raised ZeroDivisionError": broken("Failing", result=lambda self, y: 1 / 0),
    "NaN or infinite numbers": broken("Divergent", result=lambda self, y: y / 0.0),
}


def test_a_sound_core_passes_as_a_class_and_by_name():
    jaxrl.check_core(Average)
    jaxrl.check_core("tests.networks.test_core_check:Average")


@pytest.mark.slow
@pytest.mark.parametrize("said", BROKEN)
def test_mistakes_are_named(said):
    with pytest.raises(ValueError, match=r"^core ") as caught:
        jaxrl.check_core(BROKEN[said])
    assert said in str(caught.value)
    assert BROKEN[said].__name__ in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_core_is_refused():
    with pytest.raises(ValueError, match="declares `waits_for_the_carry`"):
        jaxrl.check_core(nn.Dense(3))
    with pytest.raises(ValueError, match=r"`network.core` \(='lstn'\) is no registered name"):
        jaxrl.check_core("lstn")
