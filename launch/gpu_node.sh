#!/usr/bin/env bash
# Trains on the GPUs of this machine, and restarts from the newest checkpoint after failures that may be temporary.
#
#   launch/gpu_node.sh [options] ARGUMENTS OF jaxrl.main...
#
#   --gpus=I,J,...   which GPUs (default: all, or those of CUDA_VISIBLE_DEVICES)
#   --per-gpu        one process per GPU, instead of one process for all of them
#   --restart=R      restart up to R times (default: 0); needs --workdir=DIR among the arguments
#   --deterministic  bitwise reproducible, slower
#   --dry-run        print the commands and start nothing
#
# Example: launch/gpu_node.sh --config=configs/ppo_minatar.py --workdir=runs/minatar
#
# Needs the extra cuda12 or cuda13: pip install 'jaxrl-recurrent[cuda13]'. SIGTERM and SIGINT save and end.
set -euo pipefail

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; }
refuse() { echo "error: $*" >&2; exit 2; }

gpus=${CUDA_VISIBLE_DEVICES:-} per_gpu='' restarts=0 workdir='' dry_run=''
arguments=()
for argument; do
  case $argument in
    -h | --help) usage; exit 0 ;;
    --gpus=*) gpus=${argument#*=} ;;
    --per-gpu) per_gpu=yes ;;
    --restart=*) restarts=${argument#*=} ;;
    --deterministic) export XLA_FLAGS="${XLA_FLAGS:-} --xla_gpu_deterministic_ops=true" ;;
    --dry-run) dry_run=yes ;;
    *) arguments+=("$argument") ;;
  esac
  if [[ $argument == --workdir=?* ]]; then workdir=${argument#*=}; fi
done
[[ $restarts =~ ^[0-9]{1,4}$ ]] || refuse "\`--restart\` (=$restarts) must be an integer of at least 0"
[[ $restarts == 0 || -n $workdir ]] || refuse "\`--restart\` needs \`--workdir=DIR\`, to find the checkpoints"
((${#arguments[@]})) || refuse "nothing to train: name a config file, such as --config=configs/ppo.py"
if [[ -z $gpus ]]; then
  command -v nvidia-smi >/dev/null || refuse "nvidia-smi is not installed, so GPUs cannot be counted; name them with --gpus=0,1"
  gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader | paste -sd, -)
fi
[[ $gpus =~ ^[A-Za-z0-9/-]+(,[A-Za-z0-9/-]+)*$ ]] || refuse "\`--gpus\` (=$gpus) must look like 0,1"
IFS=, read -ra each <<<"$gpus"

root=$(cd "$(dirname "$0")/.." && pwd)
export CUDA_VISIBLE_DEVICES=$gpus JAX_PLATFORMS=${JAX_PLATFORMS:-cuda}

if [[ -n $per_gpu ]] && ((${#each[@]} > 1)); then
  # Process I sees all GPUs and takes the I-th, as NCCL needs for direct connections.
  export LOCAL_POD_GPUS=yes
  command=("$root/launch/local_pod.sh" "${#each[@]}" "--restart=$restarts" "${arguments[@]}")
else
  command=("$root/launch/local_pod.sh" 1 "--restart=$restarts" "${arguments[@]}")
fi
if [[ -n $dry_run ]]; then
  mark="'" inner="'\\''" flags=${XLA_FLAGS:-}
  echo "CUDA_VISIBLE_DEVICES=$gpus JAX_PLATFORMS=$JAX_PLATFORMS XLA_FLAGS='${flags//$mark/$inner}' \\"
  exec "${command[@]}" --dry-run
fi
exec "${command[@]}"
