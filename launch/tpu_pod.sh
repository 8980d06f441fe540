#!/usr/bin/env bash
# Trains on a Cloud TPU slice: requests it, sets it up, trains, and restarts after preemptions.
#
#   launch/tpu_pod.sh COMMAND [options] ARGUMENTS OF jaxrl.main...
#
#   train    create, setup and run; after a preemption again, from the newest checkpoint
#   create   request the slice as a queued resource, and wait until it is ready
#   setup    copy this repository to all workers and install it
#   run      train on all workers of a slice that is set up, and follow worker 0
#   logs     follow the training of worker 0
#   status   print the state of the slice and of the training
#   stop     make the training save and end; the slice stays and keeps costing money
#   fetch    copy the run from the bucket to --to=DIR (default: runs/NAME)
#   delete   delete the slice; the bucket stays
#
#   --project=ID      TPU_PROJECT  of Google Cloud
#   --zone=ZONE       TPU_ZONE     such as us-west4-a
#   --type=TYPE       TPU_TYPE     such as v5litepod-32
#   --bucket=URL      TPU_BUCKET   gs://BUCKET/FOLDER of the run
#   --name=NAME       TPU_NAME     of the slice (default: jaxrl)
#   --account=EMAIL   TPU_ACCOUNT  service account of the workers (default: the project's)
#   --runtime=VERSION TPU_RUNTIME  software of the workers (default: by the type)
#   --spot            cheaper, but can be preempted at any time
#   --restart=R       restarts after preemptions and lost workers (default: 100)
#   --poll=SECONDS    between checks of the slice (default: 30)
#   --yes             do not ask before deleting
#   --dry-run         print the gcloud commands of a run without failures, and run none
#
# Example: launch/tpu_pod.sh train --spot --type=v5litepod-32 --config=configs/ppo.py --config.env.num_envs=4096
set -euo pipefail

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; }
say() { echo "tpu_pod: $*"; }
refuse() { echo "error: $*" >&2; exit 2; }
fail() { echo "error: $*" >&2; exit 1; }

command=${1:-}
case $command in
  train | create | setup | run | logs | status | stop | fetch | delete) shift ;;
  '' | -h | --help) usage; exit 0 ;;
  *) refuse "\`$command\` is not a command: train, create, setup, run, logs, status, stop, fetch, delete" ;;
esac

project=${TPU_PROJECT:-} zone=${TPU_ZONE:-} type=${TPU_TYPE:-} bucket=${TPU_BUCKET:-}
name=${TPU_NAME:-jaxrl} account=${TPU_ACCOUNT:-} runtime=${TPU_RUNTIME:-}
spot='' restarts=100 poll=30 yes='' dry_run='' to=''
arguments=()
for argument; do
  case $argument in
    -h | --help) usage; exit 0 ;;
    --project=*) project=${argument#*=} ;;
    --zone=*) zone=${argument#*=} ;;
    --type=*) type=${argument#*=} ;;
    --bucket=*) bucket=${argument#*=} ;;
    --name=*) name=${argument#*=} ;;
    --account=*) account=${argument#*=} ;;
    --runtime=*) runtime=${argument#*=} ;;
    --restart=*) restarts=${argument#*=} ;;
    --poll=*) poll=${argument#*=} ;;
    --to=*) to=${argument#*=} ;;
    --spot) spot=yes ;;
    --yes) yes=yes ;;
    --dry-run) dry_run=yes ;;
    --workdir*) refuse "\`$argument\`: a run on TPUs writes to --bucket=gs://BUCKET/FOLDER" ;;
    --config*) arguments+=("$argument") ;;
    --heartbeat=* | --watchdog=* | --join=* | --debug) arguments+=("$argument") ;;
    *) refuse "\`$argument\` is not an option; launch/tpu_pod.sh --help lists them" ;;
  esac
done

# Reports everything that is missing at once; $@ are names of options.
need() {
  local option missing=()
  for option; do
    if [[ -z ${!option} ]]; then missing+=("--$option=... (or TPU_${option^^})"); fi
  done
  if ((${#missing[@]})); then
    local list
    printf -v list '%s, ' "${missing[@]}"
    refuse "$command needs ${list%, }"
  fi
}
need_config() {
  [[ " ${arguments[*]-}" == *" --config="* ]] || refuse "$command needs a config, such as --config=configs/ppo.py"
}

case $command in
  train) need project zone type bucket; need_config ;;
  create) need project zone type bucket ;;
  run) need project zone bucket; need_config ;;
  setup | logs | status | stop | delete) need project zone ;;
  fetch) need project bucket ;;
esac
[[ -z $bucket || $bucket =~ ^gs://[a-z0-9][a-z0-9._-]+/.+$ ]] || refuse "\`--bucket\` (=$bucket) must be gs://BUCKET/FOLDER"
[[ $name =~ ^[a-z]([a-z0-9-]*[a-z0-9])?$ ]] || refuse "\`--name\` (=$name) must consist of lower-case letters, digits and -"
[[ $restarts =~ ^[0-9]{1,6}$ ]] || refuse "\`--restart\` (=$restarts) must be an integer of at least 0"
[[ $poll =~ ^[0-9]{1,4}$ ]] || refuse "\`--poll\` (=$poll) must be seconds"
if [[ -z $runtime ]]; then
  case $type in
    v6e-*) runtime=v2-alpha-tpuv6e ;;
    v5p-*) runtime=v2-alpha-tpuv5 ;;
    v5litepod-*) runtime=v2-alpha-tpuv5-lite ;;
    v3-* | v4-*) runtime=tpu-ubuntu2204-base ;;
    '') ;;
    *) refuse "\`--type\` (=$type) must look like v5litepod-32, v6e-16, v5p-8, v4-32 or v3-8; for other types give --runtime" ;;
  esac
fi
[[ -n $dry_run ]] || command -v gcloud >/dev/null || refuse "gcloud is not installed: install the Google Cloud CLI"

root=$(cd "$(dirname "$0")/.." && pwd)
where=("--project=$project" "--zone=$zone")

# Prints words for any POSIX shell. Bash's own ${x@Q} writes $'..' for a newline, which dash reads as other words.
quote() {
  local word mark="'" inner="'\\''" line=''
  for word; do line+=" '${word//$mark/$inner}'"; done
  printf '%s' "${line# }"
}

# Runs gcloud, or prints the command.
cloud() {
  if [[ -z $dry_run ]]; then gcloud "$@"; return; fi
  local word line=gcloud
  for word; do
    if [[ $word =~ ^[A-Za-z0-9_./:=,@+-]+$ ]]; then line+=" $word"; else line+=" $(quote "$word")"; fi
  done
  echo "$line"
}
queued() { cloud compute tpus queued-resources "$1" "$name" "${where[@]}" "${@:2}"; }
on_worker() { cloud compute tpus tpu-vm ssh "$name" "${where[@]}" "--worker=$1" "--command=$2"; }

# Prints the state of the slice: NONE, ACTIVE, PREEMPTED, or the queued resource's state.
state() {
  local found node
  if [[ -n $dry_run ]]; then
    queued describe '--format=value(state.state)' >&3
    echo "${assumed:-ACTIVE}"
    return
  fi
  found=$(queued describe '--format=value(state.state)' 2>/dev/null) || found=NONE
  if [[ $found == ACTIVE ]]; then
    # A spot slice disappears before its queued resource reports it.
    node=$(cloud compute tpus tpu-vm describe "$name" "${where[@]}" '--format=value(state)' 2>/dev/null) || node=NONE
    if [[ $node == PREEMPTED || $node == TERMINATED || $node == NONE ]]; then found=PREEMPTED; fi
  fi
  echo "${found:-NONE}"
}

request() {
  local options=("--node-id=$name" "--accelerator-type=$type" "--runtime-version=$runtime")
  if [[ -n $spot ]]; then options+=(--spot); fi
  if [[ -n $account ]]; then options+=("--service-account=$account"); fi
  say "requesting $type in $zone"
  queued create "${options[@]}" || fail "the request was refused; see above"
}

remove() { queued delete --force --quiet; }

# Requests the slice unless it exists, and waits for it.
create() {
  local now before=''
  cloud storage buckets describe "gs://$(cut -d/ -f3 <<<"$bucket")" "--project=$project" '--format=value(name)' ||
    fail "the bucket of $bucket does not exist, or you have no access"
  now=$(assumed=NONE state)
  while [[ $now != ACTIVE ]]; do
    case $now in
      NONE) request ;;
      SUSPENDING | DELETING) ;;
      PREEMPTED | SUSPENDED | FAILED)
        # A refused request would be refused again; a slice that was taken away can be requested again.
        if [[ $now == FAILED && -n $before ]]; then fail "the request failed: launch/tpu_pod.sh status shows the reason"; fi
        say "the slice is $now: requesting another"
        remove || true
        ;;
      *) if [[ $now != "$before" ]]; then say "$now"; fi ;;
    esac
    before=$now
    if [[ -z $dry_run ]]; then sleep "$poll"; fi
    now=$(state)
  done
  say "the slice is ready"
}

setup() {
  local archive attempt
  archive=JAXRL.tgz
  if [[ -z $dry_run ]]; then
    archive=$(mktemp -d)/jaxrl.tgz
    (cd "$root" && git ls-files -z | tar --null --files-from=- -czf "$archive") || fail "$root is no git checkout; workers are set up from one"
  fi
  local install='mkdir -p jaxrl && tar -xzf jaxrl.tgz -C jaxrl && cd jaxrl && python3 -m pip install -q --user uv'
  install+=' && python3 -m uv venv -q --allow-existing --python 3.12 .venv'
  install+=" && python3 -m uv pip install -q --python .venv -c requirements.lock -e '.[$extras]'"
  for attempt in 1 2 3 4 5; do
    # Workers answer a little later than the slice is ready.
    if cloud compute tpus tpu-vm scp "$archive" "$name:jaxrl.tgz" "${where[@]}" --worker=all; then break; fi
    ((attempt < 5)) || return 1
    sleep "$poll"
  done
  on_worker all "$install"
}
extras=tpu,gcs

# Starts the training on all workers; it outlives the connection and leaves its exit code in jaxrl.exit.
start() {
  local inner job
  # In its own session the training and its children are one process group, whose number is in jaxrl.pid.
  inner="echo \$\$ >../jaxrl.pid; .venv/bin/python -u -m jaxrl.main $(quote "${arguments[@]}" "--workdir=$bucket")"
  inner+=" >>../jaxrl.log 2>&1; echo \$? >../jaxrl.exit"
  job="cd jaxrl; if [ -e ../jaxrl.pid ]; then kill -KILL -\$(cat ../jaxrl.pid) 2>/dev/null; fi; rm -f ../jaxrl.exit ../jaxrl.stop"
  job+="; setsid sh -c $(quote "$inner") >/dev/null 2>&1 </dev/null &"
  say "training"
  on_worker all "$job"
}

follow() { on_worker 0 "tail -n ${1:-0} --pid=\$(cat jaxrl.pid) -F jaxrl.log"; }

# Prints the exit code of the training, RUNNING, STOPPED if `stop` ended it, or nothing if worker 0 does not answer.
training() {
  local look='if [ -e jaxrl.exit ] && [ -e jaxrl.stop ]; then echo STOPPED; else cat jaxrl.exit || echo RUNNING; fi'
  if [[ -n $dry_run ]]; then on_worker 0 "$look" >&3; echo 0; return; fi
  on_worker 0 "$look" 2>/dev/null | tail -n 1 || true
}

# Follows until the training has ended or the slice is gone; returns the exit code, 75 for a lost slice.
attend() {
  local code lines=20
  while true; do
    follow "$lines" || true
    lines=0
    code=$(training)
    if [[ $code == STOPPED ]]; then say "stopped, as asked; the slice still costs money"; exit 143; fi
    if [[ $code =~ ^[0-9]+$ ]]; then return "$code"; fi
    if [[ $(state) != ACTIVE ]]; then say "the slice was taken away"; return 75; fi
    sleep "$poll"
  done
}

# After 1 and 2 it would end the same way: training cannot continue, or its input is wrong.
may_restart() { (($1 == 75 || $1 >= 128)); }

train() {
  local attempt=0 code
  while true; do
    code=0
    if [[ $command == train ]]; then create; setup || code=75; fi
    if ((code == 0)); then start || code=75; fi
    if ((code == 0)); then attend || code=$?; fi
    if ((code == 0)); then say "trained; the slice still costs money: launch/tpu_pod.sh delete"; return 0; fi
    may_restart "$code" || fail "training ended with exit code $code"
    ((attempt < restarts)) || fail "that was restart $attempt of $restarts: giving up"
    ((++attempt))
    if [[ $command == run && $(state) != ACTIVE ]]; then fail "the slice is gone; train would request another"; fi
    say "restart $attempt of $restarts, from the newest checkpoint"
  done
}

delete() {
  local answer=''
  if [[ -z $yes && -z $dry_run ]]; then
    read -r -p "Delete the slice $name in $zone of $project? [y/N] " answer || true
    [[ $answer == [yY] || $answer == [yY]es ]] || fail "not deleted"
  fi
  remove
}

interrupted() { echo; say "training continues; logs follows it, stop ends it"; exit 130; }

exec 3>&1
case $command in
  train | run) trap interrupted INT; train ;;
  create) create ;;
  setup) setup || fail "the workers could not be set up" ;;
  logs) follow +1 ;;
  status)
    queued describe
    on_worker 0 'tail -n 3 jaxrl.log; cat jaxrl.exit 2>/dev/null || echo RUNNING'
    ;;
  # Only python gets the signal: the shell around it must write the exit code.
  stop) on_worker all "touch jaxrl.stop; pkill -TERM -g \$(cat jaxrl.pid) python" ;;
  fetch)
    if [[ -z $dry_run ]]; then mkdir -p "${to:-runs/$name}"; fi
    cloud storage rsync --recursive "--project=$project" "$bucket" "${to:-runs/$name}"
    ;;
  delete) delete ;;
esac
