"""What a stored configuration may import: nothing that only it names, unless the user trusts it.

A run folder may come from anyone. Its checkpoints hold arrays, and its configuration plain values, but among
these are names of modules, and importing one runs its code.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxrl.config.errors import ConfigError
from jaxrl.config.files import suite_file
from jaxrl.config.sections import Config


def require_trusted(config: Config, workdir: str) -> None:
    """Raises ConfigError where a stored configuration names modules, and says which and what to do."""
    for field, name, module in _named_modules(config):
        raise ConfigError(
            f"`{field}` (={name!r}) of the run {workdir} names the module {module}, which is only imported "
            "with --trust: it can run any code, so use that for runs of your own or of people you trust"
        )


def needs_trust(config: Config) -> bool:
    """Whether commands import a run of this configuration with --trust only."""
    return next(_named_modules(config), None) is not None


def _named_modules(config: Config) -> Iterator[tuple[str, str, str]]:
    """(field, its value, the module) of each field that names one."""
    from envs import registry, wrappers  # imports jax, which the rest of this package does without

    if (module := registry.module_of(config.env.name)) is not None:
        yield "env.name", config.env.name, module
    for wrapper in config.env.wrappers:
        if (module := wrappers.module_of(wrapper)) is not None:
            yield "env.wrappers", wrapper, module
    if (unseen := config.evaluate.unseen) and (module := registry.module_of(unseen)) is not None:
        yield "evaluate.unseen", unseen, module
    for name, is_wrapper in _names(config.evaluate.suite):
        if (module := (wrappers if is_wrapper else registry).module_of(name)) is not None:
            yield "evaluate.suite", name, module
    network = config.network
    for part, name in (("encoder", network.encoder), ("core", network.core), ("head", network.head)):
        if ":" in name:
            yield f"network.{part}", name, name.rpartition(":")[0].rpartition("=")[2]


def _names(suite: str) -> Iterator[tuple[str, bool]]:
    """(text, whether it is a wrapper) of every text in the file of a suite."""
    import yaml

    try:
        data = yaml.safe_load(Path(suite_file(suite)).read_text()) if suite else None
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        return  # nothing can be made of it
    yield from _texts(data, False)


def _texts(data: Any, is_wrapper: bool) -> Iterator[tuple[str, bool]]:
    if isinstance(data, str):
        yield data, is_wrapper
    elif isinstance(data, dict):
        for name, value in data.items():
            yield from _texts(value, name == "wrappers")
    elif isinstance(data, list):
        for value in data:
            yield from _texts(value, is_wrapper)
