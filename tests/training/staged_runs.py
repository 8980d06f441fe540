"""Helpers of tests of runs with a curriculum: their configuration, and resumes in every stage."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

import jaxrl
from jaxrl.training.trainer import Trainer
from tests.algorithms.tiny import assert_equal, copied


def staged_config(
    stages: Iterable[Mapping[str, Any]], steps: int, sections: Mapping[str, Mapping[str, Any]], **fields: Any
) -> ConfigDict:
    """A small run of so many steps; `sections` by their names, then `fields` by their dotted names."""
    config = jaxrl.default_config()
    config.num_devices = 1
    config.network.update(core="none", hidden_sizes=(4,))
    config.ppo.update(num_epochs=1)
    config.stop.steps = steps
    config.evaluate.update(every_steps=0, episodes=2)
    config.log.update(every_steps=1_000_000, layers=False)
    config.curriculum.stages = tuple(json.dumps(stage) for stage in stages)
    for name, values in sections.items():
        config[name].update(values)
    config.update_from_flattened_dict(fields)
    return config


def seen_from_each_stage(
    trainer: Trainer, folder: Path, iterations: int, stages: int, update: Callable[[int], Any]
) -> list[Any]:
    """What `update(stage)` returns of every iteration; the same again from the start of each stage.

    The run that is loaded there ends in the same state.
    """

    def advance() -> list[Any]:
        seen = []
        while trainer.progress.iteration < iterations:
            stage = int(trainer.state.tasks.stage)
            if not (folder / str(stage)).exists():
                trainer.save(folder / str(stage))
            seen.append(update(stage))
        return seen

    seen = advance()
    end = copied(trainer.state)
    for stage in range(stages):
        trainer.load(folder / str(stage))
        assert int(trainer.state.tasks.stage) == stage
        left = advance()
        assert left == seen[-len(left) :]
        assert_equal(end, trainer.state)
    return seen
