"""Search, curriculum, training and tracking in one script: the objects behind `jaxrl pipeline`.

Command:  python workflow.py runs/workflow
"""

import sys

import jaxrl
from jaxrl.reporting.writers import JsonlWriter

SPACE = {"ppo.learning_rate": {"log": [3e-4, 3e-3]}, "ppo.gae_lambda": {"uniform": [0.9, 0.98]}}


def best_config(config, folder, trials):
    """The config of the best of some short trials, as the trials had it."""
    found = jaxrl.search.optimize(config, SPACE, trials, verify=0, workdir=f"{folder}/search")
    print(f"best of {trials}: trial {found.best.number} with {found.best.score:.2f}")
    return found.config


def train(config, folder):
    """Trains by hand; the tracker takes what `log_metrics` would take elsewhere."""
    tracker = JsonlWriter(f"{folder}/metrics.jsonl")
    trainer = jaxrl.Trainer(config, writer=tracker)
    stage = 0
    while trainer.steps < config.stop.steps:
        metrics = trainer.update(trainer.rollout())  # one step of training
        trainer.log(metrics)
        if metrics["curriculum/stage"] > stage:
            stage = metrics["curriculum/stage"]
            print(f"{trainer.steps:,} steps: stage {stage:.0f}")
    trainer.save(folder)  # a run that every command takes: jaxrl evaluate, export, ...
    tracker.close()
    return trainer


def main(folder, steps=1_000_000, trials=4, trial_steps=200_000, **fields):
    config = jaxrl.load_config("ppo_navigation")
    config.update_from_flattened_dict(fields)
    config.stop.steps = trial_steps
    config.evaluate.every_steps = trial_steps
    config = best_config(config, folder, trials)
    config.stop.steps = steps
    config.curriculum.difficulties = (0.1, 0.5, 1.0)
    config.curriculum.iterations = 10
    trainer = train(config, folder)
    result = trainer.evaluate(episodes=64)
    print(f"{result.mode} return {result.mean:.2f} after {trainer.steps:,} steps")


if __name__ == "__main__":
    main(sys.argv[1])
