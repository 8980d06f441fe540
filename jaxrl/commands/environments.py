"""jaxrl environments [SUITE | SUITE:NAME]: lists environments, or tries one.

Without arguments, the suites, which of them are installed, and what installs
the others. Environments of Gymnasium are listed by name: to describe one takes
a process.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jaxrl.commands import command_line
from jaxrl.commands.arguments import DEBUG, Argument, help_text, parse
from jaxrl.config import ConfigError
from jaxrl.config.errors import RunError

if TYPE_CHECKING:
    from envs.base import EnvSpec

_MOST_STEPS = 1_000_000
ARGUMENTS = (
    Argument("SUITE", "lists its environments: spaces, masks, time limits"),
    Argument(
        "SUITE:NAME", "shows one, also with arguments and of a module of your own: 'my_env:Recall(delay=20)'"
    ),
    Argument("--match=TEXT", "only names with this text in them", str, ""),
    Argument("--names", "only names, without making the environments", bool),
    Argument(
        "--wrappers=W",
        "of the one that is shown: one wrapper, or a tuple of wrappers as in env.wrappers",
        str,
        "",
    ),
    Argument("--steps=N", "random steps to play (default: {default})", int, 100, low=1, high=_MOST_STEPS),
    DEBUG,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Lists or shows what `argv` asks for; returns the exit code (0 shown, 1 it failed, 2 bad input)."""
    return command_line.run_job(help_text(__doc__, ARGUMENTS), _job, argv)


def _job(argv: Sequence[str]) -> int:
    values, asked = parse(ARGUMENTS, argv, positional=True)
    if len(asked) > 1:
        raise ConfigError(f"one suite or environment at a time, not {', '.join(asked)}")
    chosen: dict[str, Any] = {name: values[name] for name in ("match", "names", "wrappers", "steps")}
    if not asked:
        _show_suites()
        return 0
    import jax

    # To look at an environment takes no accelerator, which a run may be using.
    jax.config.update("jax_platforms", "cpu")
    if ":" in asked[0]:
        _show_one(asked[0], _wrappers(chosen["wrappers"]), chosen["steps"])
    else:
        _show_suite(asked[0], chosen["match"], chosen["names"])
    return 0


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
    from envs import catalogue
    from jaxrl.reporting.display import table

    rows = [
        (
            suite.name,
            "host" if suite.on_host else "device",
            "yes" if suite.is_installed else "no",
            suite.about,
        )
        for suite in catalogue.SUITES
    ]
    table.show(("suite", "runs on", "installed", "environments"), rows, names=4)
    print("\njaxrl environments SUITE lists its environments, or says how to install it;")
    print("jaxrl environments SUITE:NAME shows one.")


def _show_suite(name: str, match: str, names_only: bool) -> None:
    from envs import catalogue
    from jaxrl.reporting.display import table

    try:
        suite = catalogue.suite_of(name)
        names = [x for x in catalogue.names(suite) if match.lower() in x.lower()]
    except (ValueError, ImportError) as error:
        raise ConfigError(" ".join(str(error).split())) from error
    if names_only or suite.name == "gymnasium":
        print("\n".join(f"{suite.name}:{x}" for x in names))
        return
    headings = ("environment", "observation", "action", "mask", "most steps")
    table.show(headings, [_row(f"{suite.name}:{x}") for x in names], names=3)


def _row(name: str) -> tuple[str, ...]:
    from envs import catalogue, modules, registry

    try:
        spec = registry.spec_of(name)
    except Exception as error:  # whatever a suite makes of it: the others are still listed
        return (name, f"cannot be made: {modules.one_line(error)[:100]}", "-", "-", "-")
    return (
        name,
        catalogue.describe(spec.observation_space),
        catalogue.describe(spec.action_space),
        "yes" if spec.has_action_mask else "-",
        f"{spec.max_episode_steps:,}" if spec.max_episode_steps else "-",
    )


def _show_one(name: str, wrappers: tuple[str, ...], steps: int) -> None:
    from envs import trial
    from envs.base import HostEnvError
    from jaxrl.config.resolution import environment_spec
    from jaxrl.reporting.display import table

    spec = environment_spec("SUITE:NAME", name, name, wrappers)
    table.show_fields(_fields(spec), indent=14)
    try:
        found = trial.play(name, wrappers, steps)
    except HostEnvError as error:
        raise RunError(str(error)) from error
    low, high = min(found.rewards), max(found.rewards)
    ends = f"{found.terminated} terminated, {found.truncated} cut off"
    lines = [
        ("played", f"{len(found.rewards)} random steps: rewards from {low:g} to {high:g}, {ends}"),
    ]
    if found.returns:
        mean = sum(found.returns) / len(found.returns)
        lines.append(("", f"{len(found.returns)} whole episodes of return {mean:g} on the average"))
    table.show_fields(lines, indent=14)


def _fields(spec: EnvSpec) -> Iterator[tuple[str, str]]:
    from envs import catalogue

    yield "environment", spec.name
    yield "observation", catalogue.describe(spec.observation_space)
    yield "action", catalogue.describe(spec.action_space) + (", with a mask" if spec.has_action_mask else "")
    yield "most steps", f"{spec.max_episode_steps:,}" if spec.max_episode_steps else "no limit is known"
    reports = ", ".join(f"{report.name} ({report.per_episode})" for report in spec.reports)
    yield "reports", reports or "returns and lengths of episodes alone"
