"""The definition of a pipeline: a file of YAML with a section for each stage, and gates between them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from jaxrl.config import ConfigError, flatten
from jaxrl.config.data_files import read_yaml
from jaxrl.config.errors import did_you_mean, errors_as
from jaxrl.config.fields import shorten
from jaxrl.config.files import shipped_file, shipped_names
from jaxrl.pipeline import settings
from jaxrl.pipeline.gates import StageGate
from jaxrl.pipeline.settings import STAGES

_MOST_GATES = 100


@dataclasses.dataclass(frozen=True)
class FieldFlag:
    """A flag that sets a field of the configuration, such as `steps`; in its unit the field is `scale`."""

    field: str
    scale: float = 1


# Flags of commands by name, with their kinds: `{"evaluate": {"episodes": int, ...}, ...}`.
CommandFlags = Mapping[str, Mapping[str, type | FieldFlag]]


@dataclasses.dataclass(frozen=True)
class StageSection:
    """The settings of one stage in a file.

    Attributes:
      settings: an instance of its dataclass in `settings`.
      flags: of its command, by name; a switch is a bool.
      fields: of the configuration, by dotted name.
      space: of a search, if the file has it instead of naming one.
      command: of `jaxrl`, that the flags are of; "" for none.
    """

    settings: Any
    flags: Mapping[str, Any]
    fields: Mapping[str, Any]
    space: Mapping[str, Any] | None = None
    command: str = ""

    def to_json(self) -> dict[str, Any]:
        """All values in which two sections can differ, by name."""
        own = {name: x for name, x in dataclasses.asdict(self.settings).items() if name != "enabled"}
        space = {f"space.{name}": x for name, x in (self.space or {}).items()}
        return _plain({**own, **space, **self.flags, **self.fields})


@dataclasses.dataclass(frozen=True)
class PipelineDefinition:
    """A pipeline as its file, whose text it keeps, defines it.

    Attributes:
      name: of its folders and its log.
      sections: by stage, in order; disabled ones too.
      gates: conditions that end it if they do not hold.
    """

    name: str
    sections: Mapping[str, StageSection]
    gates: tuple[StageGate, ...]
    text: str

    @property
    def enabled(self) -> tuple[str, ...]:
        """The stages that are run, in order."""
        return tuple(name for name, section in self.sections.items() if section.settings.enabled)


def read(given: str, flags: CommandFlags) -> PipelineDefinition:
    """Reads a pipeline from a file, or a shipped one by its name.

    Raises:
      ConfigError: it cannot be read, or a key or a value in it is wrong.
    """
    path = shipped_file(given, "pipelines")
    described = f"`FILE` (={given!r})"
    try:
        data = read_yaml(path)
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
    except FileNotFoundError as error:
        hint = did_you_mean(given, shipped_names("pipelines"))
        raise ConfigError(f"{described} is neither a file nor a shipped pipeline{hint}") from error
    except OSError as error:
        raise ConfigError(f"{described} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{described} must be YAML: {error}") from error
    if not isinstance(data, Mapping) or not data:
        raise ConfigError(f"{described} must hold a section for each stage, such as `train: {{config: ppo}}`")
    with errors_as(ConfigError, described, ConfigError):
        return _build(data, os.path.splitext(os.path.basename(path))[0], flags, text)


def _build(data: Mapping[Any, Any], stem: str, flags: CommandFlags, text: str) -> PipelineDefinition:
    given: dict[str, Mapping[Any, Any]] = {}
    for key, value in data.items():
        if key in ("name", "gates"):
            continue
        stage = settings.stage_name(key) if isinstance(key, str) else None
        if stage is None:
            raise ConfigError(f"`{key}` is no section{did_you_mean(str(key), ['name', 'gates', *STAGES])}")
        if stage in given:
            raise ConfigError(f"`{stage}` and `{STAGES[stage].also}` are the same section: leave one out")
        if value is not None and not isinstance(value, Mapping):
            raise ConfigError(f"`{key}` (={shorten(value)}) must be a section")
        given[stage] = value or {}
    sections = {stage: _section(stage, given.get(stage, {}), flags) for stage in STAGES}
    name = settings.NAME.check(data.get("name", stem))
    pipeline = PipelineDefinition(name, sections, _gates(data.get("gates"), sections), text)
    _check(pipeline, flags)
    return pipeline


def _gates(given: Any, sections: Mapping[str, StageSection]) -> tuple[StageGate, ...]:
    lines = [given] if isinstance(given, str) else given or []
    if not isinstance(lines, list) or len(lines) > _MOST_GATES or not all(isinstance(x, str) for x in lines):
        raise ConfigError("`gates` must be a list of lines, such as `evaluate.success_rate >= 0.9`")
    gates = tuple(StageGate.read(line) for line in lines)
    for gate in gates:
        if gate.stage not in sections or not sections[gate.stage].settings.enabled:
            enabled = [name for name, section in sections.items() if section.settings.enabled]
            hint = did_you_mean(gate.stage, enabled)
            raise ConfigError(f"`gates`: {gate.text!r} names no stage that is enabled{hint}")
    return gates


def _section(stage: str, given: Mapping[Any, Any], flags: CommandFlags) -> StageSection:
    kind = STAGES[stage]
    own = settings.settings_of(stage)
    command = kind.instead if kind.instead and given.get("format") else kind.command
    known = {_spelt(name): name for name in flags.get(command, {})}
    values = {}
    used = {}
    nested = {}
    space = None
    for key, value in given.items():
        word = _spelt(str(key))
        if key == "space" and isinstance(value, Mapping) and "space" in own:
            space = {str(name): each for name, each in value.items()}
        elif key in own:
            values[str(key)] = value
        elif word in {_spelt(name) for name in kind.chosen}:
            raise ConfigError(f"`{stage}.{key}` is chosen by the pipeline")
        elif word in known and not (isinstance(value, Mapping) and kind.takes_fields):
            flag = flags[command][known[word]]
            if isinstance(flag, FieldFlag):
                nested[flag.field] = _scale(f"{stage}.{key}", value, flag.scale)
            else:
                used[known[word]] = _flag(f"{stage}.{key}", value, flag)
        elif kind.takes_fields:
            nested[str(key)] = value
        else:
            valid = [*own, *(name for name in known.values() if name not in kind.chosen)]
            raise ConfigError(f"`{stage}.{key}` is no setting{did_you_mean(str(key), valid)}")
    return StageSection(settings.build(stage, values), used, flatten(nested), space, command)


def _spelt(name: str) -> str:
    return name.replace("-", "_")


def _scale(name: str, value: Any, scale: float) -> Any:
    if scale == 1:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"`{name}` (={shorten(value)}) must be a number")
    return scale * value


def _flag(name: str, value: Any, kind: type) -> Any:
    if isinstance(value, Mapping | list | tuple) or value is None:
        raise ConfigError(f"`{name}` (={shorten(value)}) must be one value, as of a flag")
    if kind is bool and not isinstance(value, bool):
        raise ConfigError(f"`{name}` (={shorten(value)}) must be true or false")
    return value


def _check(pipeline: PipelineDefinition, flags: CommandFlags) -> None:
    """Raises ConfigError if stages do not fit together."""
    sections = pipeline.sections
    enabled = pipeline.enabled
    if not enabled:
        raise ConfigError("no stage is enabled")
    for stage in enabled:
        command = sections[stage].command
        if command and command not in flags:
            raise ConfigError(f"`{stage}.enabled`: this version of jaxrl has no command {command}")
        if stage in ("evaluate", "visualize", "deploy", "pretrain") and "train" not in enabled:
            raise ConfigError(f"`{stage}.enabled` needs `train.enabled`: that is what it works on")
    search = sections["search"]
    if search.settings.enabled:
        if not (search.settings.space or search.space):
            raise ConfigError("`search.space` is missing: name the fields to vary (docs/search.md)")
        both = sorted(set(sections["train"].fields) & set(search.space or {}))
        if both:
            raise ConfigError(f"`train.{both[0]}` is fixed, but `search.space` varies it: leave one out")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
