#!/usr/bin/env bash
# navix 4.0.0 (as 0.7.4 did not): `navix.make(NAME)` without `max_steps` ends episodes after four times the area of the
# grid; before, it was after 100 steps in every environment. The same name is therefore another task in another
# version: in Navix-DoorKey-8x8-v0 random actions are rewarded some 18 times as often per episode, 7 times as often per
# step, and results with the defaults of one version say nothing about the other. MiniGrid's own limit is 640.
# Pass `max_steps` to compare.
#
# Seen on Python 3.12 and later (jax 0.11.2), where both can be installed, default limits of three environments:
#   0.7.4: 100 100 100
#   4.0.0: 256 144 324
set -euo pipefail
python=$(command -v python3.14 || command -v python3.13 || command -v python3.12 || true)
[[ -n $python ]] || { echo "needs Python 3.12 or later" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/seen.py" <<'PYTHON'
import navix

names = ("Navix-DoorKey-8x8-v0", "Navix-LavaGapS6-v0", "Navix-SimpleCrossingS9N1-v0")
print(*(navix.make(name).max_steps for name in names))
PYTHON
limits() {
    "$python" -m venv "$folder/$1"
    "$folder/$1/bin/pip" install --quiet "navix==$1" 'jax==0.11.2' 'jaxlib==0.11.2'
    JAX_PLATFORMS=cpu "$folder/$1/bin/python" -W ignore "$folder/seen.py" | tail -n 1
}
old=$(limits 0.7.4)
new=$(limits 4.0.0)
echo "0.7.4: $old"
echo "4.0.0: $new"
[[ $old == "100 100 100" && $new == "256 144 324" ]]
