"""What a stored configuration may import: nothing that only it names, unless the user trusts it.

A run folder may come from anyone. Its checkpoints hold arrays, and its configuration plain values, but among
these are names of modules, and importing one runs its code.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxrl.config.errors import ConfigError
from jaxrl.config.sections import Config


def require_trusted(config: Config, workdir: str) -> None:
    """Raises ConfigError where a stored configuration names modules, and says which and what to do."""
    for field, name, module in _named_modules(config):
        raise ConfigError(
            f"`{field}` (={name!r}) of the run {workdir} names the module {module}, which is only imported "
            "with --trust: it can run any code, so use that for runs of your own or of people you trust"
        )


def _named_modules(config: Config) -> Iterator[tuple[str, str, str]]:
    """(field, its value, the module) of each field that names one."""
    from envs import registry, wrappers  # imports jax, which the rest of this package does without

    if (module := registry.module_of(config.env.name)) is not None:
        yield "env.name", config.env.name, module
    for wrapper in config.env.wrappers:
        if (module := wrappers.module_of(wrapper)) is not None:
            yield "env.wrappers", wrapper, module
    network = config.network
    for part, name in (("encoder", network.encoder), ("core", network.core), ("head", network.head)):
        if ":" in name:
            yield f"network.{part}", name, name.rpartition(":")[0].rpartition("=")[2]
