#!/usr/bin/env bash
# jax 0.10.2, libtpu 0.0.42.1: parameters kept as one flat vector can take 32 times its memory on a TPU. If a narrow leaf is cut out of
# it, `flat[a:b].reshape(n, 2)`, XLA reshapes the whole vector to [P / 2, 2] and slices that. Tiles pad rows of 2 to 128 numbers: here
# 264 MiB of temporaries for a vector of 8 MiB. It needs an even offset and an even length of the vector, so that adding one parameter
# elsewhere turns it on or off. `jax.lax.optimization_barrier` between slice and reshape prevents it; jax 0.11.2 with libtpu 0.0.48.1
# does not do it. No TPU is needed: the program is compiled for a described v5e slice.
#
# Seen with jax 0.10.2, libtpu 0.0.42.1, Python 3.13 (MiB of temporaries):
#   even offset and length: 264, odd offset: 0, odd length: 0, with a barrier: 0
set -euo pipefail
python=$(command -v python3.14 || command -v python3.13 || command -v python3.12 || true)
[[ -n $python ]] || { echo "needs Python 3.12 or later" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'jax[tpu]==0.10.2' 'libtpu==0.0.42.1'
cat >"$folder/seen.py" <<'PYTHON'
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

described = topologies.get_topology_desc("v5e:2x2", "tpu")
mesh = Mesh(np.array(described.devices), ("devices",))
WIDTH, COLUMNS = 1024, 2


def mebibytes(length, offset, barrier=lambda x: x):
    def head(features, flat):
        kernel = barrier(flat[offset : offset + WIDTH * COLUMNS]).reshape(WIDTH, COLUMNS)
        return features @ kernel

    replicated = NamedSharding(mesh, PartitionSpec())
    shapes = ((512, WIDTH), (length,))
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32, sharding=replicated) for shape in shapes]
    program = jax.jit(head).lower(*arguments).compile()
    return program.memory_analysis().temp_size_in_bytes >> 20


even, odd = 2162688, 2162687
print(
    f"even offset and length: {mebibytes(even, 2048)}, odd offset: {mebibytes(even, 2049)}, "
    f"odd length: {mebibytes(odd, 2048)}, with a barrier: {mebibytes(even, 2048, jax.lax.optimization_barrier)}"
)
PYTHON
export JAX_PLATFORMS=cpu ALLOW_MULTIPLE_LIBTPU_LOAD=1 TPU_SKIP_MDS_QUERY=1 TPU_ACCELERATOR_TYPE=v5litepod-4 TPU_WORKER_HOSTNAMES=localhost
seen=$("$folder/venv/bin/python" "$folder/seen.py")
echo "$seen"
[[ $seen == "even offset and length: 264, odd offset: 0, odd length: 0, with a barrier: 0" ]]
