"""Installed packages against what they require of each other."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator

from jaxrl.config.installation import DISTRIBUTION


def unmet(packages: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(problem, requirement) for each requirement of the packages that is not met."""
    from packaging.requirements import Requirement

    for package in packages:
        try:
            wanted = importlib.metadata.requires(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for requirement in map(Requirement, wanted):
            if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
                continue
            version = installed_version(requirement.name)
            if version is None:
                yield f"{package} needs {requirement.name}, which is not installed", str(requirement)
            elif not requirement.specifier.contains(version, prereleases=True):
                name = requirement.name
                accepted = requirement.specifier
                yield f"{package} needs {name}{accepted}, installed is {version}", f"{name}{accepted}"
    # A plugin depends on jaxlib's internals, but requires its version only in an extra.
    for plugin in plugins():
        if installed_version(plugin) != installed_version("jaxlib"):
            text = f"{plugin} {installed_version(plugin)} does not fit jaxlib {installed_version('jaxlib')}"
            yield text, f"{plugin}=={installed_version('jaxlib')}"


def others_of_the_same_name() -> Iterator[str]:
    """Distributions that put files into the package `jaxrl`, beside this one."""
    for other in importlib.metadata.distributions():
        ours = other.name == DISTRIBUTION
        if not ours and any(file.parts[:1] == ("jaxrl",) for file in other.files or ()):
            yield str(other.name)


def installed_version(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def plugins() -> tuple[str, ...]:
    """The installed plugins of jax for GPUs."""
    return tuple(name for name in ("jax-cuda12-plugin", "jax-cuda13-plugin") if installed_version(name))
