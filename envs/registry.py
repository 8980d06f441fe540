"""Makes environments by name: `make("gymnax:CartPole-v1")`, `make_host("envpool:Pong-v5")`.

A name is `suite:Name` or `suite:Name(argument=value)`. A suite of device environments is a module with
`names()` and `make(name, **arguments)`; one with a `factory(name)` takes a class of its API as well,
`gymnax:path.to.module:ClassName`. If no suite has that name it is taken for a Python module of the user's
own, `path.to.module:ClassName`, importable from the current directory. An installed package registers
`suite:Name` as an entry point of the group `jaxrl.environments`, a class or a function of the arguments. A
suite of host environments is a module whose `make(name, **arguments)` returns a `HostFactory`. Either kind of
suite may have `module_of(name, arguments)`: the module that a name makes it import.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any, cast

from jaxrl.envs import entry_points, modules
from jaxrl.envs import wrappers as wrapper_registry
from jaxrl.envs.base import Dict, EnvSpec, JaxEnv
from jaxrl.envs.behaviour import check_behaviour
from jaxrl.envs.checks import check_info, check_types
from jaxrl.envs.conversion import Converted, MixedActions, with_numbers_from_zero
from jaxrl.envs.foreign import api_of
from jaxrl.envs.host_env import HostFactory
from jaxrl.envs.names import check_arguments, parse_call, unknown
from jaxrl.envs.suites import ENTRY_POINTS
from jaxrl.envs.wrappers.wrapper import UnknownStack

# Imported when first used: a suite's package may be slow to import or not installed.
_OPTIONAL = set("brax craftax jaxmarl jumanji navix pgx playground popgym_arcade xminigrid".split())
_SUITES = {"jaxrl": f"{__package__}.native"} | {
    name: f"{__package__}.adapters.{name}" for name in ("gymnax", *sorted(_OPTIONAL))
}
_HOST_SUITES = {name: f"{__package__}.adapters.{name}" for name in ("envpool", "gymnasium", "pettingzoo")}
_REGISTERED: dict[str, Callable[..., JaxEnv]] = {}


def make(name: str, wrappers: Sequence[str] = ()) -> JaxEnv:
    """Makes the environment called `name`, wrapped by `wrappers` from the innermost to the outermost.

    ValueError, one line: an unknown suite, name, wrapper or argument lists the valid ones.

    Args:
      name: `suite:Name`, `suite:Name(argument=value)` or `path.to.module:ClassName(argument=value)`.
      wrappers: each `name` or `name(argument=value)`, see `jaxrl.envs.wrappers`.
    """
    if isinstance(wrappers, str):
        raise ValueError(f"wrappers (={wrappers!r}) must be a sequence of names, not one string")
    full_name, kwargs = parse_call(name)
    suite, short_name = _split(full_name)
    if not suite or not short_name:
        # The names of the suites that are always there: the others take seconds to import.
        raise unknown("environment", name, [x for s in _suites() if s not in _OPTIONAL for x in names(s)])
    factory = _registration(full_name)
    if suite in _HOST_SUITES:
        what = f"{suite} environments run on the host and cannot be device environments"
        raise ValueError(f"{name!r}: {what}; device suites: {', '.join(_suites())}")
    built_in = suite in _SUITES and factory is None
    module = importlib.import_module(_SUITES[suite]) if built_in else None
    if factory is not None:
        env = _call(full_name, factory, kwargs)
    elif module is not None and _is_of_a_module(full_name):
        env = _converted(full_name, module.make(short_name, **kwargs))
    elif module is not None and short_name in module.names():
        env = module.make(short_name, **kwargs)
    elif suite in _suites():
        raise unknown("environment", full_name, names(suite))
    else:
        env = _call(full_name, _load_user_class(suite, short_name), kwargs)
    env = with_numbers_from_zero(env)
    if isinstance(env.spec.action_space, Dict):
        env = MixedActions(env)
    declared = env.spec.reports
    for wrapper in wrappers:
        env = wrapper_registry.wrap(env, wrapper)
        if ":" in wrapper.partition("(")[0]:
            env = Converted(env) if check_types(f"{full_name} in {wrapper}", env) else env
            env = UnknownStack(env) if env.spec.stacked_frames > 1 else env
    if env.spec.reports != declared:
        check_info(full_name, env, [report.name for report in env.spec.reports])
    return env


def check_custom(name: str) -> None:
    """Checks the behaviour of a custom environment, once, as `jaxrl.check_env`; that of others is known."""
    if is_custom(name):
        full_name = parse_call(name)[0]
        _check_once(name, _registration(full_name) or _user_class(full_name))


@functools.lru_cache
def _check_once(name: str, factory: Callable[..., JaxEnv]) -> None:
    """Populations and searches resolve many configs of the same environment; `factory` is part of the key."""
    check_behaviour(name, make(name))


def is_custom(name: str) -> bool:
    """True if `name` is a device environment of the user's own, a class or registered; never raises."""
    full_name = name.strip().partition("(")[0].strip()
    if full_name in _registered_names():
        return True
    suite = _split(full_name)[0]
    if suite in _SUITES:
        return _is_of_a_module(full_name)
    return suite not in _HOST_SUITES and module_of(name) is not None


def is_host(name: str) -> bool:
    """True if `name` belongs to a suite of host environments; never raises."""
    return name.strip().partition(":")[0] in _HOST_SUITES


def module_of(name: str) -> str | None:
    """The module that creating an environment imports, from its name; None if it has none.

    Suites and registered environments import what is installed, whatever the name. Never raises.
    """
    full_name = name.strip().partition("(")[0].strip()
    if full_name in _registered_names():
        return None
    suite, short_name = _split(full_name)
    home = (_SUITES | _HOST_SUITES).get(suite)
    if home is None:
        return None if suite in _suites() else suite or None
    # Few suites import modules from a name; they have their own `module_of`.
    adapter_module_of = getattr(importlib.import_module(home), "module_of", None)
    if adapter_module_of is None:
        return None
    try:
        arguments = parse_call(name)[1]
    except ValueError:
        arguments = {}
    return adapter_module_of(short_name, arguments)


def make_host(name: str, wrappers: Sequence[str] = ()) -> HostFactory:
    """Returns the factory of the host environment called `name`, after checking that it can be made.

    ValueError as of `make`; ImportError, which shows how to install it, if a package is missing.

    Args:
      name: `envpool:Name`, `gymnasium:Name`, `gymnasium:module:Name`, `pettingzoo:Name` or
        `pettingzoo:module:attribute`, with or without `(argument=value)`.
      wrappers: as of `make`, but only host wrappers, see `jaxrl.envs.wrappers.host`.
    """
    full_name, kwargs = parse_call(name)
    suite, _, short_name = full_name.partition(":")
    if suite not in _HOST_SUITES or not short_name:
        raise unknown("suite of host environments", suite, _HOST_SUITES)
    if isinstance(wrappers, str):
        raise ValueError(f"wrappers (={wrappers!r}) must be a sequence of names, not one string")
    _registration(full_name)
    found: HostFactory = importlib.import_module(_HOST_SUITES[suite]).make(short_name, **kwargs)
    return wrapper_registry.wrap_host(found, wrappers)


def host_takes_tasks(name: str) -> bool:
    """True if numbers can be given to the resets of that host environment; raises what making it raises."""
    return bool(getattr(make_host(name), "takes_tasks", False))


def spec_of(name: str, wrappers: Sequence[str] = ()) -> EnvSpec:
    """The spec of any environment, of the device or the host; raises what making it raises."""
    return make_host(name, wrappers).spec if is_host(name) else make(name, wrappers).spec


def check_info_key(name: str, wrappers: Sequence[str], key: str) -> None:
    """Raises ValueError if `key` is not in the info of the environment, as far as that can be known."""
    if is_host(name):
        make_host(name, wrappers).require_info(key)
    else:
        check_info(name, make(name, wrappers), [key])


def register(name: str, factory: Callable[..., JaxEnv]) -> None:
    """Registers `factory`, called with the arguments of the name, as `suite:Name`.

    ValueError: the name is not of that form, or is taken.
    """
    suite, _, short_name = name.rpartition(":")
    if not suite or not short_name or parse_call(name) != (name, {}):
        raise ValueError(f"environment name {name!r} must be of the form suite:Name")
    if suite in _HOST_SUITES:
        raise ValueError(f"environment name {name!r}: {suite} is a suite of host environments")
    if name in _REGISTERED or (suite in _SUITES and name in names(suite)):
        raise ValueError(f"environment {name!r} is already registered")
    _REGISTERED[name] = factory


def _registration(full_name: str) -> Callable[..., JaxEnv] | None:
    """The factory registered under a name, by a call or by an installed package; None if there is none.

    ValueError: an installed package registers a name that is taken, or its entry point cannot be loaded.
    """
    point = entry_points.find(ENTRY_POINTS, full_name)
    if point is None:
        return _REGISTERED.get(full_name)
    suite = full_name.rpartition(":")[0]
    if suite in _HOST_SUITES or full_name in _REGISTERED or full_name in _names_of_suite(suite):
        raise ValueError(f"environment {full_name!r}: {entry_points.clash(point)}")
    factory = entry_points.load(point)
    if not callable(factory):
        raise ValueError(f"environment {full_name!r}: {point.value} must be a class or a function")
    return cast(Callable[..., JaxEnv], factory)


def _split(full_name: str) -> tuple[str, str]:
    """(suite, name in it), or (module, class); the name in a suite may be one of a module."""
    suite, _, short_name = full_name.partition(":")
    if suite not in _SUITES and suite not in _HOST_SUITES:
        suite, _, short_name = full_name.rpartition(":")
    return suite, short_name


def _is_of_a_module(full_name: str) -> bool:
    """True if `suite:path.to.module:Class` of a device suite that takes classes."""
    suite, short_name = _split(full_name)
    return ":" in short_name and hasattr(importlib.import_module(_SUITES[suite]), "factory")


def _user_class(full_name: str) -> Callable[..., Any]:
    """The class of the user's own that a name is about, for `is_custom` ones."""
    suite, short_name = _split(full_name)
    if suite not in _SUITES:
        return _load_user_class(suite, short_name)
    return importlib.import_module(_SUITES[suite]).factory(short_name)


def _registered_names() -> set[str]:
    return {*_REGISTERED, *entry_points.names(ENTRY_POINTS)}


def _suites() -> list[str]:
    registered = (name.rpartition(":")[0] for name in _registered_names())
    return sorted({*_SUITES, *registered} - {"", *_HOST_SUITES})


def suites() -> list[str]:
    """The suites of the device and of the host, installed or not."""
    return sorted({*_suites(), *_HOST_SUITES})


def names(suite: str) -> list[str]:
    """The environments of a suite of the device, as `suite:Name`; ImportError if it is not installed."""
    registered = {name for name in _registered_names() if name.startswith(f"{suite}:")}
    return sorted({*registered, *_names_of_suite(suite)})


def _names_of_suite(suite: str) -> list[str]:
    """The environments of a suite that are built in."""
    names = importlib.import_module(_SUITES[suite]).names() if suite in _SUITES else ()
    return [f"{suite}:{name}" for name in names]


def _call(name: str, factory: Callable[..., Any], kwargs: dict[str, Any]) -> JaxEnv:
    check_arguments(name, factory, kwargs)
    env = factory(**kwargs)
    require(name, env, "spec", "reset", "step")
    return _converted(name, env)


def _converted(name: str, env: Any) -> JaxEnv:
    return Converted(env) if check_types(name, env) else cast(JaxEnv, env)


def require(name: str, thing: Any, *attributes: str) -> None:
    """Raises ValueError unless a thing has what a JaxEnv has."""
    missing = [attribute for attribute in attributes if not hasattr(thing, attribute)]
    if missing:
        raise ValueError(f"{name} is not a JaxEnv: it lacks {', '.join(missing)}")


def _load_user_class(path: str, name: str) -> Callable[..., Any]:
    if not modules.is_name(path):
        raise unknown("suite", path, suites())
    try:
        module = modules.load(path)
    except ModuleNotFoundError as error:
        if modules.is_missing(error, path):
            message = unknown("suite", path, suites())
            raise ValueError(f"{message}; nor is it a module that can be imported from here") from error
        raise ValueError(f"importing {path} for {path}:{name} failed: {error}") from error
    # A class of environments and nothing else: a name must not be able to call any function there is.
    found = getattr(module, name, None)
    if not isinstance(found, type):
        classes = [key for key, value in vars(module).items() if isinstance(value, type) and key[0] != "_"]
        raise unknown(f"class of the module {path}:", name, classes)
    if api := api_of(found):
        raise ValueError(f"{path}:{name} is not a JaxEnv; {api.advice(f'{path}:{name}')}")
    require(f"{path}:{name}", found, "reset", "step")
    return found
