#!/usr/bin/env bash
# jax 0.10.2: in `jax.shard_map`, `pmean(grad(loss)(params, batch), axis)` is the gradient times the number of devices,
# while the same line in `jax.pmap` is the gradient. By default (`check_vma=True`) shard_map knows that the parameters
# are the same everywhere, and their gradient, which must be so too, already is the sum over the devices; the mean of
# equal numbers is accepted and changes nothing. Adam divides the factor out, so that learning curves look right; with
# SGD, with clipping by norm and in logged gradient norms it stays, and results depend on the number of devices. The
# guide "Migrating to the new jax.pmap" does not mention it. Take `pmean` of the loss instead, inside `grad`; or make
# the parameters different by `jax.lax.pcast(params, axis, to="varying")` and keep the `pmean` of the gradient; or pass
# `check_vma=False`.
#
# Seen with jax 0.10.2, Python 3.11, four virtual CPU devices, mean of w * x for x = 0 to 7, gradient in w:
#   one device 3.5; pmap 3.5; shard_map 14.0
#   shard_map with the mean of the loss 3.5, with pcast 3.5, with check_vma=False 3.5
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

DEVICES = 4
mesh = jax.make_mesh((DEVICES,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
w, x = jnp.float32(1), jnp.arange(8, dtype=jnp.float32)


def loss(w, x):
    return jnp.mean(w * x)


def step(w, x):
    return jax.lax.pmean(jax.grad(loss)(w, x), "data")


def mean_of_loss(w, x):
    return jax.grad(lambda w: jax.lax.pmean(loss(w, x), "data"))(w)


def with_pcast(w, x):
    return step(jax.lax.pcast(w, "data", to="varying"), x)


def sharded(function, **options):
    specs = {"in_specs": (P(), P("data")), "out_specs": P()}
    return float(jax.jit(jax.shard_map(function, mesh=mesh, **specs, **options))(w, x))


mapped = jax.pmap(step, axis_name="data", in_axes=(None, 0))(w, x.reshape(DEVICES, -1))
print(f"one device {jax.grad(loss)(w, x)}; pmap {mapped[0]}; shard_map {sharded(step)}")
print(
    f"shard_map with the mean of the loss {sharded(mean_of_loss)}, with pcast {sharded(with_pcast)}, "
    f"with check_vma=False {sharded(step, check_vma=False)}"
)
PYTHON
XLA_FLAGS=--xla_force_host_platform_device_count=4 JAX_PLATFORMS=cpu \
    "$folder/venv/bin/python" -W ignore "$folder/seen.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
one device 3.5; pmap 3.5; shard_map 14.0
shard_map with the mean of the loss 3.5, with pcast 3.5, with check_vma=False 3.5
SEEN
