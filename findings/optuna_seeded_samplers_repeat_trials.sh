#!/usr/bin/env bash
# optuna 5.0.0: a sampler with a seed starts its stream anew in every process, whatever trials the study holds. A search that
# is resumed, or whose workers all pass the same seed to one storage, evaluates the same points again: `RandomSampler`
# all of them, `TPESampler` those that it samples at random, the first `n_startup_trials` (10) of the study. Sessions of
# four trials below evaluate the first two points three times. There is no warning, duplicates count as trials, and
# TPE models two trials of one point as two points. Pass no seed, or one that depends on the number of trials there are:
# `TPESampler(seed=hash_of(seed, len(study.trials), worker))`. `study.ask` does not help: it asks the same sampler.
# `QMCSampler` counts in the storage and does not repeat.
#
# Seen with optuna 5.0.0, Python 3.11, sessions of 4 trials of one study with seed 1 each, one parameter:
#   RandomSampler: 4 different points in 12 trials
#   TPESampler: 6 different points in 12 trials
#   QMCSampler: 12 different points in 12 trials
#   TPESampler, seeds by trial: 12 different points in 12 trials
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'optuna==5.0.0' 'scipy==1.17.1'
cat >"$folder/seen.py" <<'PYTHON'
import sys
import warnings

import optuna

warnings.simplefilter("ignore")
optuna.logging.set_verbosity(optuna.logging.ERROR)


def session(storage, make):
    """Opens the study as a new process would, with a new sampler, and runs four trials."""
    study = optuna.create_study(storage=storage, study_name="search", load_if_exists=True)
    study.sampler = make(len(study.trials))
    study.optimize(lambda trial: trial.suggest_float("learning_rate", 0, 1), n_trials=4)
    return study


def say(name, make):
    storage = optuna.storages.InMemoryStorage()
    for _ in range(3):
        study = session(storage, make)
    points = [trial.params["learning_rate"] for trial in study.trials]
    print(f"{name}: {len(set(points))} different points in {len(points)} trials")


samplers = optuna.samplers
say("RandomSampler", lambda trials: samplers.RandomSampler(seed=1))
say("TPESampler", lambda trials: samplers.TPESampler(seed=1))
say("QMCSampler", lambda trials: samplers.QMCSampler(seed=1))
say("TPESampler, seeds by trial", lambda trials: samplers.TPESampler(seed=1 + trials))
PYTHON
"$folder/venv/bin/python" "$folder/seen.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
RandomSampler: 4 different points in 12 trials
TPESampler: 6 different points in 12 trials
QMCSampler: 12 different points in 12 trials
TPESampler, seeds by trial: 12 different points in 12 trials
SEEN
