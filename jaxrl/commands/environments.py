"""jaxrl environments [SUITE | SUITE:NAME | NAME]: lists environments or tries one.

Without arguments, the suites, which of them are installed, and what installs
the others. The environments of a suite come from a table, those that it lacks
from the version that is installed. Environments of Gymnasium and PettingZoo are
listed by name: to describe one takes a process.
"""

from __future__ import annotations

import ast
import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from jaxrl.commands import command_line
from jaxrl.commands.arguments import Argument, CommandArguments, flag
from jaxrl.config.environment import full_name
from jaxrl.config.errors import ConfigError, RunError, errors_as
from jaxrl.config.text import counted

if TYPE_CHECKING:
    from jaxrl.envs.base import EnvSpec
    from jaxrl.envs.suites import Collection, Entry

_MOST_STEPS = 1_000_000
_INDENT = 34
_WIDTH = 80
_WANTING = """\
These need data or packages beside the suite, or have spaces that are not
supported; `jaxrl environments SUITE:NAME` says which:"""


class _Flags(CommandArguments):
    suite = Argument("SUITE", "lists its environments: spaces, masks, time limits")
    suite_name = Argument(
        "SUITE:NAME", "shows one, also with arguments or from a custom module: 'my_env:Recall(delay=20)'"
    )
    name = Argument("NAME", "shows the one of that name in the first suite that has it, as --env takes it")
    match: str = flag("--match=TEXT", "only names with this text in them", "")
    names: bool = flag("--names", "only names, without making the environments")
    wrappers: str = flag(
        "--wrappers=W", "of the one that is shown: one wrapper, or a tuple of wrappers as in env.wrappers", ""
    )
    steps: int = flag("--steps=N", "random steps to play (default: {default})", 100, within=(1, _MOST_STEPS))


@command_line.command(__doc__, _Flags, positional=True)
def main(flags: _Flags, asked: Sequence[str]) -> int:
    if len(asked) > 1:
        raise ConfigError(f"one suite or environment at a time, not {', '.join(asked)}")
    if not asked:
        _show_suites()
        return 0
    # To look at an environment takes no accelerator, which a run may be using.
    os.environ["JAX_PLATFORMS"] = "cpu"
    if suite := _suite(asked[0]):
        _show_suite(suite, flags.match, flags.names)
    else:
        name, found = full_name("NAME", asked[0])
        if found:
            command_line.say(found)
        _show_one(name, _wrappers(flags.wrappers), flags.steps)
    return 0


def _suite(name: str) -> Collection | None:
    """The suite of that name; None if an environment may have it."""
    from jaxrl.envs import suites

    try:
        return suites.suite_of(name)
    except ValueError as error:
        from jaxrl.envs import catalogue  # Imports jax, which lists do without.

        if ":" in name or catalogue.find(name):
            return None
        near = difflib.get_close_matches(name, [suite.name for suite in suites.SUITES])
        raise ConfigError(str(error if near else catalogue.not_found(name))) from error


def _wrappers(text: str) -> tuple[str, ...]:
    """`"('a', 'b(x=1)')"` as a tuple; anything else is one wrapper."""
    if not text.startswith("("):
        return (text,) if text else ()
    try:
        found = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        found = None
    wrappers = (found,) if isinstance(found, str) else found
    if not (isinstance(wrappers, tuple) and all(isinstance(wrapper, str) for wrapper in wrappers)):
        raise ConfigError(f"`--wrappers` (={text!r}) must be one wrapper or a tuple of strings")
    return wrappers


def _show_suites() -> None:
    from jaxrl.envs import suites
    from jaxrl.reporting.display import table

    rows = []
    for suite in suites.SUITES:
        installed = "yes" if suite.is_installed else "no"
        rows.append((suite.name, "host" if suite.on_host else "device", installed, suite.about))
    table.show(("suite", "runs on", "installed", "environments"), rows, names=4)
    print("\njaxrl environments SUITE lists its environments, or prints how to install it;")
    print("jaxrl environments SUITE:NAME shows one.")


def _show_suite(suite: Collection, match: str, names_only: bool) -> None:
    from jaxrl.envs import suites

    try:
        known = suites.known(suite) or {}
        exact = bool(known) and suites.known_version(suite) == suite.version
        if exact:
            names = [*known, *suites.registered(suite)]
        else:
            from jaxrl.envs import catalogue  # imports jax, which tables do without

            names = [*catalogue.listed(suite)]
    except (ValueError, ImportError) as error:
        raise ConfigError(" ".join(str(error).split())) from error
    names = sorted(name for name in names if match.lower() in name.lower())
    if names_only or suite.name in suites.WITHOUT_TABLE:
        print("\n".join(f"{suite.name}:{name}" for name in names))
    else:
        _show_entries(suite.name, names, known)
        if known and not exact:
            found = f"{suite.name} {suites.known_version(suite)}; {suite.version} is installed"
            print(
                f"\nSpaces are for {found};\n`jaxrl environments {suite.name}:NAME` shows the installed ones."
            )


def _show_entries(suite: str, names: Sequence[str], known: Mapping[str, Entry | None]) -> None:
    """Prints each environment in words: from `known`, or by making it."""
    from jaxrl.reporting.display import table

    rows, wanting, problems = [], [], []
    for name in names:
        try:
            if (entry := known.get(name)) is None and name not in known:
                from jaxrl.envs import catalogue

                entry = catalogue.entry_of(f"{suite}:{name}")
        except ValueError as error:
            problems.append(str(error))
            continue
        if entry is None:
            wanting.append(f"{suite}:{name}")
        else:
            rows.append((f"{suite}:{name}", _in_words(entry)))
    table.show_fields(rows, indent=_INDENT, width=_WIDTH)
    for title, lines in (("Cannot be made:", problems), (_WANTING, wanting)):
        if lines:
            print(f"\n{title}")
            table.show_fields([(line, "") for line in lines], indent=_INDENT, width=_WIDTH)


def _in_words(entry: Entry) -> str:
    """An environment's spaces and limit: `float32[4] -> Discrete(2), 500 steps`."""
    mask = " with a mask" if entry.has_mask else ""
    steps = f", {counted(entry.most_steps, 'step')}" if entry.most_steps else ""
    return f"{entry.observation} -> {entry.action}{mask}{steps}"


def _show_one(name: str, wrappers: tuple[str, ...], steps: int) -> None:
    from jaxrl.config.environment import environment_spec
    from jaxrl.envs import env_check
    from jaxrl.envs.host_env import HostEnvError
    from jaxrl.reporting.display import table

    spec = environment_spec("SUITE:NAME", name, name, wrappers)
    table.show_fields(_fields(spec), indent=14)
    with errors_as(RunError, "", HostEnvError):
        found = env_check.play(name, wrappers, steps)
    low, high = min(found.rewards), max(found.rewards)
    ends = f"{found.terminated} terminated, {found.truncated} cut off"
    lines = [("played", f"{len(found.rewards)} random steps: rewards from {low:g} to {high:g}, {ends}")]
    if found.returns:
        mean = sum(found.returns) / len(found.returns)
        lines.append(("", f"{counted(len(found.returns), 'whole episode')} with a mean return of {mean:g}"))
    table.show_fields(lines, indent=14)


def _fields(spec: EnvSpec) -> Iterator[tuple[str, str]]:
    from jaxrl.config.selection import choose, known_environment
    from jaxrl.envs import catalogue, registry

    yield "environment", spec.name
    yield "observation", catalogue.describe(spec.observation_space)
    yield "action", catalogue.describe(spec.action_space) + (", with a mask" if spec.has_action_mask else "")
    if spec.agents:
        yield "agents", f"{spec.num_agents} that share a policy: {', '.join(spec.agents)}"
    if spec.central_observation is not None:
        yield "whole", f"{catalogue.describe(spec.central_observation)}, for `network.central_value`"
    yield "most steps", f"{spec.max_episode_steps:,}" if spec.max_episode_steps else "no limit is known"
    config, reason = choose(spec, registry.is_host(spec.name))
    yield "config", f"{config}, since {reason}"
    known = known_environment(spec.name)
    if known is not None and known.measured is not None:
        yield "reaches", str(known.measured)
    for published in known.published if known is not None else ():
        yield "published", str(published)
    reports = ", ".join(f"{report.name} ({report.per_episode})" for report in spec.reports)
    yield "reports", reports or "returns and lengths of episodes alone"
