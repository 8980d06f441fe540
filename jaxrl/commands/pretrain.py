"""jaxrl pretrain --config=CONFIG --data=DIR: clones a policy from demonstrations.

The network, environment and normalisation are CONFIG's, of any algorithm that
has a policy. After each pass over the episodes the policy is validated on held-
out ones; training ends after three validations without improvement. The folder
is a run like any other; the last line is the command for further training.
RUN/clone.json has accuracy, likelihood and played return, and whether the clone
is better than one without observations.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from jaxrl.commands import command_line, resumption, run_arguments
from jaxrl.commands.arguments import CONFIG_FIELD, ENV, Argument, CommandArguments, flag
from jaxrl.config import ConfigError
from jaxrl.config.fields import LARGEST_INT32
from jaxrl.config.text import number
from jaxrl.runs.signals import Interruption, catch_signals


class _Flags(CommandArguments):
    config = Argument("CONFIG", "a config file, or the name of a shipped one; or --config=")
    config_flag = Argument("--config=CONFIG")
    env = ENV
    data: str = flag("--data=DIR", "the episodes: jaxrl record, jaxrl prepare-data", "")
    bc_epochs: int = flag(
        "--bc-epochs=N", "passes over them at most (default: {default})", 10, (1, LARGEST_INT32)
    )
    bc_batch_size: int = flag(
        "--bc-batch-size=N", "steps of an update, about (default: {default})", 64, (1, LARGEST_INT32)
    )
    bc_learning_rate: float = flag("--bc-learning-rate=X", "of Adam (default: {default})", 3e-4, (0.0, 1e3))
    bc_patience: int = flag(
        "--bc-patience=N", "checks without a better one that end it; 0: none does", 3, (0, 10**6)
    )
    bc_validation: float = flag(
        "--bc-validation=X", "share of the episodes that only checks", 0.1, (0.0, 0.9)
    )
    class_weights: str = flag("--class-weights=W", "balanced: each action weighs the same; none", "none")
    config_field = CONFIG_FIELD
    workdir = Argument(
        "--workdir=DIR", "its folder (default: runs/CONFIG/DATE-TIME-PROCESS); an existing run resumes"
    )


# With which training continues from a clone, as in docs/imitation.md.
_GUIDANCE = {"value_warmup": "2", "teacher_coef": "10"}


@command_line.command(__doc__, _Flags, known_only=True)
def main(flags: _Flags, left: Sequence[str]) -> int:
    with catch_signals() as interruption:
        return _clone(flags, left, interruption)


def _clone(flags: _Flags, left: Sequence[str], interruption: Interruption) -> int:
    if not flags.data:
        raise ConfigError("`--data` is missing: name a folder of episodes (jaxrl record)")
    arguments = run_arguments.parse_single("jaxrl pretrain", left)
    arguments.announce()

    from jaxrl.runs import records

    records.require_no_runs(arguments.workdir)
    from jaxrl.training.cloning import CloningPlan, clone

    plan = CloningPlan(
        data=flags.data,
        epochs=flags.bc_epochs,
        batch_size=flags.bc_batch_size,
        learning_rate=flags.bc_learning_rate,
        validation=flags.bc_validation,
        patience=flags.bc_patience,
        class_weights=flags.class_weights,
    )
    outcome, found = clone(arguments.config, plan, arguments.workdir, interruption, arguments.processes)
    if found is not None:
        _show(found)
        command_line.say(_next(arguments.config, ["jaxrl", *left], outcome.folder, found["passed"]))
    elif outcome.is_first:
        workdir = shlex.quote(f"--workdir={outcome.folder}")
        command_line.say(f"it resumes with the same command and {workdir}")
    return outcome.exit_code


def _show(found: dict[str, Any]) -> None:
    data = found["data"]
    counts = f"{data['episodes']} episodes, {data['steps']:,} steps"
    command_line.say(f"data         {counts}: {found['plan']['data']}")
    cost = f"{number(found['loss'])} nats a step, {number(found['prior_loss'])} without seeing anything"
    hits = {"accuracy": "accuracy {:.1%}, ", "absolute_error": "absolute error {:.4g}, "}
    hit = "".join(form.format(found[name]) for name, form in hits.items() if name in found)
    print(f"learnt       {hit}{cost}, on {found['judged_by']} episodes")
    played = found["played"]
    ways = [name.split("/")[1] for name in played if name.count("/") == 2 and name.endswith("/return")]
    shown = []
    for prefix in [f"{way}/" for way in ways] or [""]:
        solved = played.get(f"eval/{prefix}success_rate")
        success = "" if solved is None else f", success {solved:.1%}"
        shown.append(f"{prefix.replace('/', ' ')}return {number(played[f'eval/{prefix}return'])}{success}")
    print(f"played       {'; '.join(shown)}")


def _next(config: ConfigDict, argv: Sequence[str], folder: str, passed: bool) -> str:
    """The line with the command that trains on, for a shell: from the clone, if that has learnt anything."""
    words = [*resumption.jaxrl(), "train", *resumption.without_folder(argv)]
    if not passed:
        why = "the clone is no better than one without observations"
        return f"warning: {why}; without it: {shlex.join(words)}"
    fields = {"init_from": folder}
    section = config.algorithm
    if {"teacher", "value_warmup"} <= {*config[section]}:
        # A clone has no value function, and the advantages of an untrained one would undo it.
        fields |= {f"{section}.{name}": x for name, x in (("teacher", folder), *_GUIDANCE.items())}
    flags = [f"--config.{name}={value}" for name, value in fields.items()]
    return f"next         {shlex.join([*words, *flags])}"
