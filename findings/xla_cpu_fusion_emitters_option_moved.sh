#!/usr/bin/env bash
# jax 0.11.2 (Python 3.12 or later): XLA's option `xla_cpu_use_fusion_emitters=false`, which made CPU programs compile in
# about two thirds of the time, is gone: `compile(compiler_options=...)` raises "No such compile option". The emitters can
# still be left out through XLA's map of extra options, with the same effect, in jax 0.10.2 as well:
#   XLA_FLAGS=--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters
# That map cannot be given to `compile(compiler_options=...)`, and XLA ignores a name in it that it does not know, so it
# is for a whole process (a test run, say) and never ends it.
#
# Seen with jax 0.11.2, Python 3.13 (two cores of an AMD EPYC; CPU seconds vary, the order does not):
#   refused: No such compile option; without the emitters: fewer CPU seconds to compile
set -euo pipefail
python=$(command -v python3.14 || command -v python3.13 || command -v python3.12 || true)
[[ -n $python ]] || { echo "needs Python 3.12 or later" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'jax==0.11.2' 'jaxlib==0.11.2'
cat >"$folder/seconds.py" <<'PYTHON'
import time

import jax
import jax.numpy as jnp


def work(x):
    def body(x, _):
        for i in range(30):
            x = jnp.tanh(x + jnp.sin(x).sum(0) * i) + x[::-1]
        return x, x.sum()

    return jax.lax.scan(body, x, length=10)


jax.jit(lambda x: x + 1)(1.0)
lowered = jax.jit(work).lower(jnp.ones((8, 8)))
began = time.process_time()
lowered.compile()
print(time.process_time() - began)
PYTHON
cat >"$folder/refused.py" <<'PYTHON'
import jax

try:
    jax.jit(lambda x: x).lower(1.0).compile(compiler_options={"xla_cpu_use_fusion_emitters": False})
    print("accepted")
except jax.errors.JaxRuntimeError as error:
    print("No such compile option" if "No such compile option" in str(error) else str(error))
PYTHON
export JAX_PLATFORMS=cpu JAX_ENABLE_COMPILATION_CACHE=false
refused=$("$folder/venv/bin/python" "$folder/refused.py")
usual=$("$folder/venv/bin/python" "$folder/seconds.py")
without=$(XLA_FLAGS=--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters \
    "$folder/venv/bin/python" "$folder/seconds.py")
echo "refused: $refused; usual $usual, without the emitters $without CPU seconds to compile"
[[ $refused == "No such compile option" ]]
awk -v a="$without" -v b="$usual" 'BEGIN { exit !(a < 0.85 * b) }'
