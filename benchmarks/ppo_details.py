"""Measures which details of PPO matter: each is changed alone, with the same seeds as the config that ships.

  python benchmarks/ppo_details.py run acrobot hidden-cartpole --out=runs/details
  python benchmarks/ppo_details.py table --out=runs/details

Seeds and all numbers that a compiled program takes are members of one population (`jaxrl.make_population`),
so there is one program for each structural detail and one for all others. The score is the mean return of
training episodes over all steps, so that learning early counts. What exists in --out is not repeated.
docs/ppo_details.md has the tables.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

LAST = 0.1  # the share of the steps that counts as the end


@dataclasses.dataclass(frozen=True)
class Detail:
    """One thing that is changed, alone.

    Attributes:
      name: in the table.
      fields: of the configuration, by dotted name.
    """

    name: str
    fields: Mapping[str, Any]

    @property
    def numbers(self) -> dict[str, float] | None:
        """By name, the numbers of a program of PPO that it changes; None: it is another program."""
        found = {name.removeprefix("ppo."): value for name, value in self.fields.items()}
        return found if found.keys() <= NUMBERS else None


@dataclasses.dataclass(frozen=True)
class Task:
    """A config and the details that are changed in it.

    Attributes:
      config: the name of the shipped config.
      fields: in which all runs differ from it.
      details: without the config as it is.
    """

    config: str
    fields: Mapping[str, Any]
    details: Sequence[Detail]


NUMBERS = {
    "learning_rate",
    "gamma",
    "gae_lambda",
    "clip_range",
    "entropy_coef",
    "value_coef",
    "max_grad_norm",
}
UNCHANGED = Detail("as shipped", {})
COMMON = (
    Detail("advantages not normalised", {"ppo.normalize_advantages": False}),
    Detail("values clipped", {"ppo.clip_value": True}),
    Detail("constant learning rate", {"ppo.schedule": "constant"}),
    Detail("gain of the policy's last layer 1", {"network.policy_gain": 1.0}),
    Detail("1 epoch", {"ppo.num_epochs": 1}),
    Detail("10 epochs", {"ppo.num_epochs": 10}),
    Detail("observations not normalised", {"normalize.observations": False}),
    Detail("entropy bonus 0.01", {"ppo.entropy_coef": 0.01}),
)
FEED_FORWARD = (
    Detail("rewards not scaled", {"normalize.rewards": False}),
    Detail("entropy bonus 0.03", {"ppo.entropy_coef": 0.03}),
    Detail("gradient hardly clipped (norm 10)", {"ppo.max_grad_norm": 10.0}),
    Detail("learning rate / 3", {"ppo.learning_rate": 1e-3}),
    Detail("learning rate x 3", {"ppo.learning_rate": 9e-3}),
)
RECURRENT = (
    Detail("rewards not scaled", {"normalize.rewards": False}),
    Detail("discount 0.96", {"ppo.gamma": 0.96}),
    Detail(
        "discount 0.96, lambda 0.85, clip range 0.15",
        {"ppo.gamma": 0.96, "ppo.gae_lambda": 0.85, "ppo.clip_range": 0.15},
    ),
    Detail("sequences of 16 steps", {"ppo.sequence_length": 16}),
    Detail("sequences of 4 steps", {"ppo.sequence_length": 4}),
    Detail(
        "sequences of 16 steps, carries refreshed", {"ppo.sequence_length": 16, "ppo.refresh_carries": True}
    ),
    Detail(
        "sequences of 4 steps, carries refreshed", {"ppo.sequence_length": 4, "ppo.refresh_carries": True}
    ),
)
CONTINUOUS = (
    Detail("4 epochs", {"ppo.num_epochs": 4}),
    Detail("rewards not scaled", {"normalize.rewards": False}),
    Detail("discount 0.95", {"ppo.gamma": 0.95}),
    Detail("discount 0.99", {"ppo.gamma": 0.99}),
    Detail("tanh", {"network.activation": "tanh"}),
    Detail("actions begin with a deviation of 0.5", {"network.policy_std": 0.5}),
    Detail("one network for policy and value", {"network.separate_value": False}),
    Detail("learning rate / 3", {"ppo.learning_rate": 3.3e-4}),
    Detail("learning rate x 3", {"ppo.learning_rate": 3e-3}),
)
GAME = (
    Detail("2 epochs", {"ppo.num_epochs": 2}),
    Detail("no entropy bonus", {"ppo.entropy_coef": 0.0}),
    Detail("rewards scaled", {"normalize.rewards": True}),
    Detail("discount 0.98", {"ppo.gamma": 0.98}),
    Detail("discount 0.995", {"ppo.gamma": 0.995}),
    Detail("lambda 0.65", {"ppo.gae_lambda": 0.65}),
    Detail("lambda 0.95", {"ppo.gae_lambda": 0.95}),
    Detail("gradient hardly clipped (norm 10)", {"ppo.max_grad_norm": 10.0}),
    Detail("layers normalised", {"network.layer_norm": True}),
    Detail("learning rate / 3", {"ppo.learning_rate": 1e-3}),
    Detail("learning rate x 3", {"ppo.learning_rate": 9e-3}),
)
TASKS = {
    "acrobot": Task(
        "ppo_mlp",
        {"env.name": "gymnax:Acrobot-v1", "stop.steps": 200_000},
        (*COMMON, *FEED_FORWARD),
    ),
    "cartpole": Task(
        "ppo_mlp",
        {"stop.steps": 100_000},
        (*COMMON, *FEED_FORWARD),
    ),
    "pendulum": Task(
        "ppo_continuous",
        {"stop.steps": 500_000},
        (*(x for x in COMMON if x.name != "10 epochs"), *CONTINUOUS),
    ),
    "breakout": Task(
        "ppo_minatar",
        {"stop.steps": 500_000},
        (*(x for x in COMMON if x.name not in ("10 epochs", "observations not normalised")), *GAME),
    ),
    "hidden-cartpole": Task(
        "ppo",
        {"stop.steps": 150_000},
        (
            *COMMON,
            *RECURRENT,
            Detail("learning rate / 3", {"ppo.learning_rate": 1.3e-3}),
            Detail("learning rate x 3", {"ppo.learning_rate": 1.2e-2}),
        ),
    ),
}


def main() -> None:
    """Does what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job", choices=["run", "table"])
    parser.add_argument("tasks", nargs="*", default=list(TASKS), help=", ".join(TASKS))
    parser.add_argument("--out", type=Path, default=Path("runs/ppo_details"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="after which `run` begins nothing"
    )
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.tasks if name not in TASKS]:
        parser.error(f"no such tasks: {', '.join(unknown)}; there are {', '.join(TASKS)}")
    if arguments.job == "table":
        for name in arguments.tasks:
            print(f"{name}\n\n{table(arguments.out / name)}\n")
        return
    end = time.monotonic() + arguments.seconds
    for name in arguments.tasks:
        run(TASKS[name], arguments.out / name, arguments.seeds, end)


def run(task: Task, folder: Path, seeds: int, end: float) -> None:
    """Trains what is missing in the folder, program after program, until the monotonic time `end`."""
    folder.mkdir(parents=True, exist_ok=True)
    programs = [[UNCHANGED, *(x for x in task.details if x.numbers)]]
    programs += [[x] for x in task.details if not x.numbers]
    for details in programs:
        missing = [x for x in details if not file_of(folder, x).exists()]
        if not missing or time.monotonic() > end:
            continue
        start = time.monotonic()
        for detail, curves in zip(missing, trained(task, missing, seeds), strict=True):
            file_of(folder, detail).write_text(json.dumps({"name": detail.name, "curves": curves}) + "\n")
        names = ", ".join(x.name for x in missing)
        print(f"{folder.name}: {names}: {time.monotonic() - start:.0f} s", flush=True)


def file_of(folder: Path, detail: Detail) -> Path:
    """Where the curves of a detail are."""
    return folder / f"{''.join(x if x.isalnum() else '_' for x in detail.name)}.json"


def trained(task: Task, details: Sequence[Detail], seeds: int) -> list[list[list[float]]]:
    """The mean return of training episodes [details, seeds, iterations], of one program."""
    import jax
    import jax.numpy as jnp

    import jaxrl
    from jaxrl.config.files import load_config

    config = load_config(task.config)
    # Numbers of several details are given to the program; what else differs is one detail's.
    own = {} if details[0].numbers is not None else details[0].fields
    for name, value in {**task.fields, "stop.return": None, "stop.every_mode": False, **own}.items():
        config.update_from_flattened_dict({name: value})
    changed = {name for detail in details for name in detail.numbers or {}}
    numbers = {
        name: jnp.repeat(
            jnp.asarray([(detail.numbers or {}).get(name, config.ppo[name]) for detail in details]), seeds
        )
        for name in changed
    }
    train = jaxrl.make_population(config)
    keys = jax.vmap(jax.random.key)(jnp.tile(jnp.arange(seeds), len(details)))
    _, metrics = train(keys, jaxrl.hyperparameters(config, **numbers))
    returns = np.asarray(metrics["episode/return"])
    return returns.reshape(len(details), seeds, -1).round(4).tolist()


def table(folder: Path) -> str:
    """The details by score, as Markdown; seeds are compared with the same seed of the config as it is."""
    found = {}
    for file in folder.glob("*.json"):
        told = json.loads(file.read_text())
        found[told["name"]] = np.asarray(told["curves"], float)
    if UNCHANGED.name not in found:
        raise SystemExit(f"{folder} has no runs of the config {UNCHANGED.name}")
    shipped = scores(found[UNCHANGED.name])
    lines = [
        "| detail | mean return over all steps: median (lowest to highest) | over the last tenth | "
        "better than shipped |",
        "|---|---|---|---|",
    ]
    for name, curves in sorted(found.items(), key=lambda x: -float(np.median(scores(x[1])))):
        score, last = scores(curves), scores(curves, LAST)
        better = "" if name == UNCHANGED.name else f"{int((score > shipped).sum())} of {len(score)}"
        shown = f"**{name}**" if name == UNCHANGED.name else name
        lines.append(f"| {shown} | {spread(score)} | {spread(last)} | {better} |")
    return "\n".join(lines)


def scores(curves: np.ndarray, share: float = 1.0) -> np.ndarray:
    """The mean of each curve [seeds, iterations] over the last share of its iterations; NaN is left out."""
    count = max(1, round(share * curves.shape[1]))
    return np.nanmean(curves[:, -count:], axis=1)


def spread(values: np.ndarray) -> str:
    """`median (lowest to highest)`, with three digits."""
    low, middle, high = (f"{x:.3g}" for x in (values.min(), np.median(values), values.max()))
    return f"{middle} ({low} to {high})"


if __name__ == "__main__":
    main()
