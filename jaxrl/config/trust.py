"""Imports by a stored configuration: nothing that only it names, unless the user trusts it.

A run folder may come from anyone. Its checkpoints hold arrays, and its configuration plain values, but among
these are names of modules, and importing one runs its code. A field that may hold one is marked in its
declaration (`names_module`); environments, wrappers and suites have rules of their own. What an installed
package registers is imported like that package itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from jaxrl.config.configuration import Config
from jaxrl.config.construction import read_section
from jaxrl.config.data_files import read_yaml
from jaxrl.config.declarations import values_of
from jaxrl.config.errors import ConfigError
from jaxrl.config.files import shipped_file


def require_trusted(config: Config, workdir: str) -> None:
    """Raises ConfigError if training a stored configuration would import modules that it names."""
    _refuse_first((*_named_modules(config), *_modules_of_suite(config.evaluate.suite)), workdir)


def admit(config: Config, workdir: str, trust: bool, said_by: str = "--trust") -> Config:
    """A stored configuration with its algorithm's section; ConfigError if it needs `trust` and has none."""
    if not trust:
        # What acts plays no suite of the configuration: that file is not even read.
        _refuse_first(_named_modules(config), workdir, said_by)
    return read_section(config)


def needs_trust(config: Config) -> bool:
    """True if commands import a run of this configuration only with --trust."""
    return next(_named_modules(config), None) is not None


def _refuse_first(named: Iterable[tuple[str, str, str]], workdir: str, said_by: str = "--trust") -> None:
    for field, name, module in named:
        raise ConfigError(
            f"`{field}` (={name!r}) of the run {workdir} names the module {module}, which is only imported "
            f"with {said_by}: it can run any code, so use that only for trusted runs"
        )


def _named_modules(config: Config) -> Iterator[tuple[str, str, str]]:
    """(field, its value, the module) of each field that names one."""
    for field, value in values_of(config):
        if field.names_module:
            yield from ((field.name, value, module) for module in _modules_of(value))
    yield from _modules_of_environments(config)


def _modules_of(value: str) -> Iterator[str]:
    """The modules of `module:attribute`, or of several as `key=module:attribute` with commas between."""
    for part in value.split(","):
        if ":" in part:
            yield part.rpartition("=")[2].rpartition(":")[0].strip()


def _modules_of_environments(config: Config) -> Iterator[tuple[str, str, str]]:
    """The modules of environments and wrappers, whose names may have arguments."""
    from jaxrl.envs import registry, wrappers  # imports jax, which the rest of this package does without

    if (module := registry.module_of(config.env.name)) is not None:
        yield "env.name", config.env.name, module
    for wrapper in config.env.wrappers:
        if (module := wrappers.module_of(wrapper)) is not None:
            yield "env.wrappers", wrapper, module
    if (unseen := config.evaluate.unseen) and (module := registry.module_of(unseen)) is not None:
        yield "evaluate.unseen", unseen, module


def _modules_of_suite(suite: str) -> Iterator[tuple[str, str, str]]:
    from jaxrl.envs import registry, wrappers

    try:
        data = read_yaml(shipped_file(suite, "suites")) if suite else None
    except (OSError, ValueError):
        return  # nothing can be made of it
    for name, is_wrapper in _texts(data, False):
        if (module := (wrappers if is_wrapper else registry).module_of(name)) is not None:
            yield "evaluate.suite", name, module


def _texts(data: Any, is_wrapper: bool) -> Iterator[tuple[str, bool]]:
    """(text, whether it is a wrapper) of every text in the content of a suite's file."""
    if isinstance(data, str):
        yield data, is_wrapper
    elif isinstance(data, dict):
        for name, value in data.items():
            yield from _texts(value, name == "wrappers")
    elif isinstance(data, list):
        for value in data:
            yield from _texts(value, is_wrapper)
