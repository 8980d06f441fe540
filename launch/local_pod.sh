#!/usr/bin/env bash
# Trains with N processes on this machine that connect like those of a cluster, for tests and demos.
#
#   launch/local_pod.sh N [options] ARGUMENTS OF jaxrl.main...
#
#   --devices=M   virtual CPU devices of each process (default: 1)
#   --restart=R   restart from the newest checkpoint, up to R times, after a process was lost, stuck or
#                 preempted; needs --workdir=DIR among the arguments
#   --shrink      use one process fewer at each restart, as if the lost one did not come back
#   --logs=DIR    write the output of process I to DIR/I.log instead of printing it after [I]
#   --port=P      port of the coordinator (default: a free one)
#   --dry-run     print the commands and start nothing
#
# Example: launch/local_pod.sh 2 --devices=2 --config=configs/ppo.py --workdir=runs/pod
#
# After SIGTERM or SIGINT to this script or any of the processes, all save at the same iteration and end.
# If one fails, the others are ended. The exit code is the one of the process that failed first; 128 + S if it was
# ended by signal S.
set -euo pipefail

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; }
say() { echo "local_pod: $*"; }
refuse() { echo "error: $*" >&2; exit 2; }

is_count() { [[ $1 =~ ^[1-9][0-9]{0,3}$ ]]; }

workers='' devices=1 restarts=0 shrink='' logs='' port='' dry_run='' workdir=''
arguments=()
for argument; do
  case $argument in
    -h | --help) usage; exit 0 ;;
    --devices=*) devices=${argument#*=} ;;
    --restart=*) restarts=${argument#*=} ;;
    --shrink) shrink=yes ;;
    --logs=*) logs=${argument#*=} ;;
    --port=*) port=${argument#*=} ;;
    --dry-run) dry_run=yes ;;
    --coordinator* | --num_processes* | --process_id*) refuse "\`$argument\` is set by this script" ;;
    --*) arguments+=("$argument") ;;
    *) if [[ -z $workers && ${#arguments[@]} == 0 ]]; then workers=$argument; else arguments+=("$argument"); fi ;;
  esac
  if [[ $argument == --workdir=?* ]]; then workdir=${argument#*=}; fi
done
[[ -n $workers ]] || refuse "the number of processes is missing: launch/local_pod.sh N [options] ARGUMENTS"
is_count "$workers" || refuse "the number of processes (=$workers) must be an integer of at least 1"
is_count "$devices" || refuse "\`--devices\` (=$devices) must be an integer of at least 1"
[[ $restarts == 0 ]] || is_count "$restarts" || refuse "\`--restart\` (=$restarts) must be an integer of at least 0"
[[ -z $port ]] || is_count "${port:0:4}" || refuse "\`--port\` (=$port) must be a port number"
[[ $restarts == 0 || -n $workdir ]] || refuse "\`--restart\` needs \`--workdir=DIR\`, to find the checkpoints"

root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-}
able='import sys; from importlib.util import find_spec; sys.exit(not (find_spec("jaxrl") and find_spec("jax")))'
if [[ -z $python && -z ${VIRTUAL_ENV:-} && -x $root/.venv/bin/python ]]; then python=$root/.venv/bin/python; fi
python=$(command -v "${python:-python3}") || refuse "${python:-python3} is not installed; name another with PYTHON=..."
if [[ -z $dry_run ]] && ! (cd "$root" && "$python" -c "$able") 2>/dev/null; then
  refuse "$python lacks jaxrl or what it needs: call \`make setup\` in $root, or name another with PYTHON=..."
fi
# In a checkout; where the package is installed, this script lies in it.
if [[ -d $root/jaxrl ]]; then export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}; fi
export PYTHONUNBUFFERED=1
export JAX_PLATFORMS=${JAX_PLATFORMS:-cpu}
if [[ $JAX_PLATFORMS == cpu ]]; then export JAX_NUM_CPU_DEVICES=$devices; fi

pids=() codes=() asked=''

# If this script is killed, the processes get SIGTERM.
guard=()
if command -v setpriv >/dev/null && setpriv --pdeathsig TERM true 2>/dev/null; then
  guard=(setpriv --pdeathsig TERM)
fi

# Prints words for any POSIX shell. Bash's own ${x@Q} writes $'..' for a newline, which dash reads as other words.
quote() {
  local word mark="'" inner="'\\''" line=''
  for word; do line+=" '${word//$mark/$inner}'"; done
  printf '%s' "${line# }"
}

free_port() {
  "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Prints the output of process $1, without gloo's greetings.
prefixed() { trap '' INT TERM HUP; exec sed -u "/\[Gloo\] Rank/d; / peer ranks/d; s/^/[$1] /"; }

# Becomes a process of the run. A terminal that closes tells all of them, as this script does: once is enough.
become() { trap '' HUP; exec ${guard[@]+"${guard[@]}"} "$@"; }

start() {
  local index address=127.0.0.1:${port:-$(free_port)} command
  pids=() codes=()
  for ((index = 0; index < workers; index++)); do
    if [[ -n ${LOCAL_POD_GPUS:-} ]]; then export JAX_LOCAL_DEVICE_IDS=$index; fi
    command=("$python" -m jaxrl.main "--coordinator=$address" "--num_processes=$workers"
      "--process_id=$index" ${arguments[@]+"${arguments[@]}"})
    if [[ -n $dry_run ]]; then
      printf '%s %s\n' "$(env | grep -E '^JAX_(PLATFORMS|NUM_CPU|LOCAL)' | sort | paste -sd' ' -)" "$(quote "${command[@]}")"
    elif [[ -n $logs ]]; then
      mkdir -p "$logs"
      become "${command[@]}" >>"$logs/$index.log" 2>&1 &
      pids+=($!)
    else
      become "${command[@]}" > >(prefixed "$index") 2>&1 &
      pids+=($!)
    fi
  done
  if [[ -z $dry_run ]]; then say "processes ${pids[*]} meet at $address"; fi
}

signal_all() {
  local index
  for index in "${!pids[@]}"; do
    if [[ -z ${codes[index]:-} ]]; then kill "-$1" "${pids[index]}" 2>/dev/null || true; fi
  done
}

# Stores the exit codes of processes that have ended; true while any is running.
any_runs() {
  local index running=1 code
  for index in "${!pids[@]}"; do
    if [[ -n ${codes[index]:-} ]]; then continue; fi
    if kill -0 "${pids[index]}" 2>/dev/null; then
      running=0
    else
      code=0
      wait "${pids[index]}" || code=$?
      codes[index]=$code
      if ((code)) && [[ -z $failed ]]; then failed=$index; fi
      # A process that lost another one is not the cause, though its end may be noticed first.
      if ((code)) && [[ -z $ending ]] && follows "${codes[failed]}" && ! follows "$code"; then failed=$index; fi
    fi
  done
  return $running
}

follows() { [[ $1 == 75 || $1 == 134 ]]; }

described() {
  case $1 in
    75 | 134) echo "lost another process, or was stuck (exit code $1)" ;;
    129 | 130 | 143) echo "was asked to end (exit code $1)" ;;
    *) if (($1 > 128)); then echo "was ended by SIG$(kill -l $(($1 - 128)))"; else echo "ended with exit code $1"; fi ;;
  esac
}

# Waits up to $1 seconds for all to end.
wait_for_all() {
  local deadline=$((SECONDS + $1))
  while any_runs; do
    ((SECONDS < deadline)) || return 1
    sleep 0.1
  done
}

# Ends all processes, after giving them time to end by themselves; a second signal does not wait for training.
end_all() {
  wait_for_all 3 && return
  ending=yes
  signal_all TERM
  wait_for_all 2 || { signal_all TERM; wait_for_all 5; } || { signal_all KILL; wait_for_all 10; }
}

# Runs the processes until all have ended; returns the exit code.
run() {
  failed='' ending=''
  start
  [[ -z $dry_run ]] || return 0
  while any_runs && [[ -z $failed ]]; do
    sleep 0.1
    if [[ -n $asked ]]; then
      signal_all TERM
      wait_for_all 60 || end_all
    fi
  done
  [[ -n $failed ]] || return 0
  end_all || say "processes ${pids[*]} do not end"
  if [[ -z $asked ]]; then say "process $failed $(described "${codes[failed]}")"; fi
  return "${codes[failed]}"
}

# A second signal does not wait for training.
on_signal() {
  if [[ -n $asked ]]; then signal_all TERM; fi
  asked=yes
}
trap on_signal TERM INT HUP

# The processes' output does not come this way; without this, bash would report each one that a signal ended.
exec 2>/dev/null

attempt=0
while true; do
  code=0
  run || code=$?
  if ((code == 0)) || [[ -n $asked ]]; then exit "$code"; fi
  # 1 and 2 would come again: training cannot continue, or its input is wrong.
  if ((code != 75 && code < 128)); then exit "$code"; fi
  if ((attempt == restarts)); then
    if ((restarts)); then say "that was restart $attempt of $restarts: giving up"; fi
    exit "$code"
  fi
  ((++attempt))
  if [[ -n $shrink ]] && ((workers > 1)); then ((--workers)); fi
  say "restart $attempt of $restarts, from the newest checkpoint, with $workers processes"
done
