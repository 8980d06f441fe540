"""Config files: a user's own by path, in Python, YAML or JSON; shipped ones by name.

YAML and JSON hold the fields by section, over the defaults or a shipped config that `base` names.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import os
import re
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from jaxrl.config import converted_counts, other_layouts, words
from jaxrl.config.data_files import parse_json, read_bytes, read_yaml
from jaxrl.config.declarations import algorithm_of, declared_fields, default_config, flatten, section_of
from jaxrl.config.errors import ConfigError, did_you_mean, errors_as
from jaxrl.config.fields import shorten
from jaxrl.config.overrides import move, override

_NESTED = (".yaml", ".yml", ".json")
ENDINGS = (".py", *_NESTED)  # of config files
_ENVIRONMENT = re.compile(r"^[\w.]+:\w|-v\d+(\(.*\))?$")  # suite:Name, or Name-v1
SHIPPED = Path(__file__).parent / "shipped"  # The folder configs/ of a checkout.


@dataclasses.dataclass
class Remarks:
    """Lines for the user on a config file, and on how many devices to train at most; 0: on `num_devices`."""

    lines: list[str] = dataclasses.field(default_factory=list)
    most_devices: int = 0


def shipped_names(kind: str = "configs") -> list[str]:
    """Returns the names of the shipped configs, or of the "suites", "curricula" or "pipelines"."""
    return sorted(_shipped(kind))


def shipped_file(given: str, kind: str = "configs") -> str:
    """Returns the file of a shipped config, suite, curriculum or pipeline; any other path as it is."""
    if kind != "configs" and os.path.exists(given):
        return given
    return str(_shipped(kind).get(given, given))


def _shipped(kind: str) -> dict[str, Path]:
    files = [*SHIPPED.glob("[!_]*.py")] if kind == "configs" else [*(SHIPPED / kind).glob("*.yaml")]
    files += [SHIPPED / "pipeline_config.yaml"] if kind == "pipelines" else []
    return {path.stem: path for path in files}


def load_config(
    given: str | os.PathLike[str], remarks: Remarks | None = None, quick: bool = False, environment: str = ""
) -> ConfigDict:
    """Returns the `get_config()` of a Python file, or the content of a YAML or JSON file.

    Args:
      given: a path, or the name of a shipped config.
      remarks: takes remarks for the user, such as on keys without a counterpart.
      quick: returns its short form, `get_config(quick=True)`.
      environment: chooses a section of a file of rl-baselines3-zoo, which has one for each.

    Raises:
      ConfigError: there is no such file, it raises, returns no ConfigDict or has no short form, or a key or
        value in it is wrong.
    """
    path = _path_of(os.fspath(given) if isinstance(given, os.PathLike) else given)
    described = f"`--config` (={str(given)!r})"
    no_quick = ConfigError(f"{described} has no short form for `--quick`: a get_config(quick)")
    if path.endswith(_NESTED):
        if quick:
            raise no_quick
        return _load_nested(path, described, remarks or Remarks(), environment)
    spec = importlib.util.spec_from_file_location("_jaxrl_config_file", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{described} must end in {', '.join(ENDINGS)}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        get_config = getattr(module, "get_config", lambda: None)
        if quick and "quick" not in inspect.signature(get_config).parameters:
            raise no_quick
        config = get_config(**({"quick": True} if quick else {}))
        if not isinstance(config, ConfigDict):
            raise ConfigError(f"{described} must define get_config() that returns a ConfigDict")
        config.to_dict()  # a reference to a field that does not exist shows here
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{described} {_explain(error, path)}") from error
    return config


def _path_of(given: str) -> str:
    names = shipped_names()
    if not given:
        raise ConfigError(
            "`--config` is missing: name a config file or one of the shipped configs, such as --config=ppo "
            f"({', '.join(names)}), or an environment, such as --env=gymnax:CartPole-v1"
        )
    if given in names:
        return shipped_file(given)
    if foreign := words.described_file(given):
        raise ConfigError(f"`--config` (={given!r}) {foreign}")
    if os.path.isfile(given):
        return given
    if _ENVIRONMENT.search(given):
        raise ConfigError(f"`--config` (={given!r}) is an environment: name it by --env={given}")
    folder, file = os.path.split(given)
    stem, ending = os.path.splitext(file)
    if not folder and not ending:
        text = f"`--config` (={given!r}) is neither a file nor a shipped config"
        raise ConfigError(f"{text}{did_you_mean(given, names)}")
    hint = f"; did you mean `{stem}`?" if stem in names else ""
    files = [path.name for path in Path(folder).glob("*.*") if path.suffix in ENDINGS and path.is_file()]
    if not hint and files:
        hint = did_you_mean(file, files, prefix=os.path.join(folder, ""))
    raise ConfigError(f"`--config` (={given!r}) is no file{hint}")


def _explain(error: BaseException, path: str) -> str:
    """The error that the file raised, with its line in the file; a SyntaxError names the line itself."""
    try:
        message = " ".join(str(error).split())
    except Exception:  # the file's own class
        message = "without a message"
    text = f"raised {type(error).__name__}: {message}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f for f in frames if f.filename == os.path.abspath(path)]
    return text + (f" (line {lines[-1].lineno}: {lines[-1].line})" if lines else "")


def _load_nested(path: str, described: str, remarks: Remarks, environment: str) -> ConfigDict:
    form = "JSON" if path.endswith(".json") else "YAML"
    try:
        data = parse_json(read_bytes(path), _single_keys) if form == "JSON" else read_yaml(path)
    except OSError as error:
        raise ConfigError(f"{described} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{described} must be {form}: {error}") from error
    if not isinstance(data, Mapping) or not data:
        raise ConfigError(f"{described} must hold fields by section, such as `ppo: {{gamma: 0.99}}`")
    with errors_as(ConfigError, described, ConfigError):
        found = Remarks()
        if other_layouts.is_zoo(data):
            data = other_layouts.read_zoo_section(data, path, environment)
        config = _build(data, found)
    remarks.lines += [f"{path}: {line}" for line in found.lines]
    remarks.most_devices = found.most_devices
    return config


def _single_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object; raises ValueError if a key comes twice: only its last value would count."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {max(keys, key=keys.count)!r} comes twice")
    return found


def _build(data: Mapping[Any, Any], remarks: Remarks) -> ConfigDict:
    base = data.get("base")
    if base is not None and not isinstance(base, str):
        raise ConfigError(f"`base` (={shorten(base)}) must be the name of a shipped config")
    found = other_layouts.translate({key: value for key, value in data.items() if key != "base"})
    fields = flatten(found.fields)
    algorithm = fields.pop("algorithm", None)
    if base is not None and base not in shipped_names():
        raise ConfigError(f"`base` (={base!r}) is no shipped config{did_you_mean(base, shipped_names())}")
    config = default_config() if base is None else load_config(base)
    if algorithm is not None:
        override(config, "algorithm", algorithm)
        config = default_config(config.algorithm) if base is None else config
    fields = _of_algorithm(fields, config, found)
    if found.left_out:
        remarks.lines.append(f"without a counterpart here, and left out: {', '.join(found.left_out)}")
    if base is not None and isinstance(fields.get("env.name"), str):
        moved = move(config, fields["env.name"], fields)
        if moved:
            remarks.lines.append(f"{fields['env.name']} with the config {base}: {moved}")
    sections = {field.section for field in declared_fields(algorithm_of(config)).values()}
    for name, value in fields.items():
        if value is not None or name not in sections:  # A section in which all lines are comments is None.
            override(config, name, value)
    if found.is_foreign:
        remarks.lines += converted_counts.convert(config, found.sizes, fields)
        size = found.sizes.get("devices")
        # One device is always there; of more, as many are taken as there are.
        if size is not None and size.value == 1:
            override(config, "num_devices", 1)
        elif size is not None:
            remarks.most_devices = size.value
            remarks.lines.append(f"{size}: at most so many devices; if there are fewer, all of them")
    return config


def _of_algorithm(
    fields: Mapping[str, Any], config: ConfigDict, found: other_layouts.Translation
) -> dict[str, Any]:
    """The fields by their names, without fields that the algorithm does not have."""
    section = section_of(algorithm_of(config)).name
    declared = declared_fields(algorithm_of(config))
    named = {}
    for name, value in fields.items():
        field = name
        if name.startswith(other_layouts.LEARNER):
            field = name.replace(other_layouts.LEARNER, f"{section}.", 1)
            if field not in declared:
                found.left_out.append(f"{found.origin[name]} (no field of {section})")
                continue
        named[field] = value
    return named
