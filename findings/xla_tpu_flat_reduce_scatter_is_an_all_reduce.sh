#!/usr/bin/env bash
# jax 0.11.2, libtpu 0.0.48.1 (0.10.2 likewise): `jax.lax.psum_scatter` of a flat vector, as in a sharded optimiser (ZeRO), compiles
# for TPUs to an all-reduce and a slice: memory falls as hoped, traffic does not. `jax.lax.all_gather` of parts with an odd number
# of elements becomes an all-reduce of a vector of zeros with the part in it, twice the bytes. A vector with the devices as an axis
# of their own in front of rows of 128, `psum_scatter(x.reshape(devices, -1, 128), axis)`, keeps the reduce-scatter, and parts that
# are multiples of 128 keep the all-gather. No TPU is needed: programs are compiled for a described v5e slice.
#
# Seen with jax 0.11.2, libtpu 0.0.48.1, Python 3.13:
#   flat scatter: all-reduce, rows of 128: reduce-scatter, odd gather: all-reduce, even gather: all-gather
set -euo pipefail
python=$(command -v python3.14 || command -v python3.13 || command -v python3.12 || true)
[[ -n $python ]] || { echo "needs Python 3.12 or later" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'jax[tpu]==0.11.2' 'libtpu==0.0.48.1'
cat >"$folder/seen.py" <<'PYTHON'
import re

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

described = topologies.get_topology_desc("v5e:4x8", "tpu")
devices = len(described.devices)
mesh = Mesh(np.array(described.devices), ("data",))


def exchange(program, length, given, returned):
    """The exchange in the compiled program; XLA calls a reduce-scatter within a fusion all-reduce-scatter."""
    sharded = jax.shard_map(program, mesh=mesh, in_specs=given, out_specs=returned, check_vma=False)
    vector = jax.ShapeDtypeStruct((length,), jnp.float32, sharding=NamedSharding(mesh, given))
    text = jax.jit(sharded).lower(vector).compile().as_text()
    if "all-reduce-scatter" in text or re.search(r" reduce-scatter(-start)?\(", text):
        return "reduce-scatter"
    return re.search(r" (all-reduce|all-gather)(-start)?\(", text)[1]


def flat(x):
    return jax.lax.psum_scatter(x, "data", tiled=True)


def rows(x):
    return jax.lax.psum_scatter(x.reshape(devices, -1, 128), "data").ravel()


def gather(x):
    return jax.lax.all_gather(x, "data", tiled=True)


even, odd = devices * 67584, devices * 65793
print(
    f"flat scatter: {exchange(flat, even, P(), P('data'))}, rows of 128: {exchange(rows, even, P(), P('data'))}, "
    f"odd gather: {exchange(gather, odd, P('data'), P())}, even gather: {exchange(gather, even, P('data'), P())}"
)
PYTHON
export JAX_PLATFORMS=cpu ALLOW_MULTIPLE_LIBTPU_LOAD=1 TPU_SKIP_MDS_QUERY=1 TPU_ACCELERATOR_TYPE=v5litepod-4 TPU_WORKER_HOSTNAMES=localhost
seen=$("$folder/venv/bin/python" "$folder/seen.py")
echo "$seen"
[[ $seen == "flat scatter: all-reduce, rows of 128: reduce-scatter, odd gather: all-reduce, even gather: all-gather" ]]
