"""Hints for the attributes that a trainer lacks, by the names of other trainers."""

from __future__ import annotations

from collections.abc import Iterable

from jaxrl.config.errors import did_you_mean

# What other trainers call ours.
_OTHER_NAMES = dict.fromkeys(("train", "learn"), "fit()") | {
    "training_step": "update(rollout())",
    "predict": "jaxrl.load(folder).act(obs)",
    "mean_and_log": "log(metrics), which `update` has averaged",
    "save_checkpoint": "save(folder)",
    "load_checkpoint": "load(folder)",
}


def hint(name: str, trainer: object, attributes: Iterable[str]) -> str:
    """Ends an error about what a trainer lacks; `attributes` are those that its class does not show."""
    if name in _OTHER_NAMES:
        return f": it is {_OTHER_NAMES[name]}"
    config = vars(trainer).get("config")  # None before it has one.
    if config is not None and hasattr(config.learner, name):
        return f": it is set({name}=...)"
    return did_you_mean(name, [x for x in (*dir(type(trainer)), *attributes) if not x.startswith("_")])
