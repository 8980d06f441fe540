"""Text about the fields: a config file with all of them, and the lists that `--help` shows."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

from jaxrl.config.configuration import BUILT_IN, DEFAULT, Config
from jaxrl.config.construction import plain
from jaxrl.config.declarations import declared_fields, section_meanings, section_of, values_of
from jaxrl.config.errors import ConfigError, did_you_mean
from jaxrl.config.fields import Field, describe

_FILE_WIDTH = 110
_HELP_WIDTH = 80
_NAME_WIDTH = 30


def config_file(config: Config, about: str = "", changed_only: bool = False) -> str:
    """Returns a config file whose `get_config()` resolves to `config`, with the meaning beside each field.

    Args:
      about: its docstring; "" is the one for a list of all fields.
      changed_only: leave out fields that have their defaults.
    """
    return "\n".join(
        [
            f'"""{about or "Every field, as `jaxrl train --print-config` printed it."}"""',
            "",
            "from ml_collections import ConfigDict",
            "",
            "from jaxrl.config import default_config",
            "",
            "",
            "def get_config() -> ConfigDict:",
            f"    c = default_config({'' if config.algorithm in BUILT_IN else _literal(config.algorithm)})",
            *_assignments(config, changed_only),
            "    return c",
        ]
    )


def yaml_file(config: Config, about: str = "") -> str:
    """Returns the same in YAML, as `--config=FILE.yaml` reads it."""
    lines = [f"# {about or 'Every field, as `jaxrl train --print-config=yaml` printed it.'}"]
    last = ""
    for field, value in values_of(config):
        section = field.section
        key = field.name.rpartition(".")[2]
        if section != last:
            lines += ["", f"{section}:"]
            last = section
        indent = "  " if section else ""
        lines += _explained(f"{indent}{key}: {_yaml_value(value)}", field, indent)
    return "\n".join(lines)


def json_file(config: Config) -> str:
    """Returns the same in JSON, without the meanings."""
    return json.dumps(plain(config), indent=2, ensure_ascii=False)


def _yaml_value(value: Any) -> str:
    """The value as YAML 1.1 reads it, which takes a number with an exponent but no point for text."""
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and "e" in text and "." not in text:
        return text.replace("e", ".0e")
    return text


def _assignments(config: Config, changed_only: bool) -> Iterator[str]:
    last = ""
    for field, value in values_of(config):
        section = field.section
        key = field.name.rpartition(".")[2]
        if changed_only and value == field.default:
            continue
        if section != last:
            if not changed_only:
                yield ""
            last = section
        target = f"c.{section}" if section else "c"
        # A key that is no attribute is a word that Python reserves.
        target += f".{key}" if key == field.attribute else f'["{key}"]'
        yield from _explained(f"    {target} = {_literal(value)}", field, "    ")


def _explained(line: str, field: Field, indent: str) -> list[str]:
    """The line with the meaning of its field as a comment, beside it or above."""
    if len(line) + len(field.help) + 4 <= _FILE_WIDTH:
        return [f"{line}  # {field.help}"]
    comment = f"{indent}# "
    return [*textwrap.wrap(field.help, _FILE_WIDTH, initial_indent=comment, subsequent_indent=comment), line]


def _literal(value: Any) -> str:
    """The value as people write it in Python."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return f"{value:_}" if type(value) is int else repr(value)


def section_list(algorithm: str = "") -> str:
    """Returns each section, of other algorithms only for "", with its meaning, at most 80 columns wide."""
    meanings = section_meanings(algorithm or DEFAULT)
    own = section_of(algorithm).name if algorithm else ""
    names = [name for name in meanings if not own or name not in BUILT_IN or name == own]
    fields = declared_fields(algorithm or DEFAULT)
    indent = " " * (max(map(len, names)) + 5)
    listed = []
    for name in names:
        start = f"  {name}".ljust(len(indent))
        listed += textwrap.wrap(meanings[name], _HELP_WIDTH, initial_indent=start, subsequent_indent=indent)
    alone = ", ".join(name for name, field in fields.items() if not field.section)
    return "\n".join(
        [
            "Sections of fields, which are set as in --config.env.num_envs=128:",
            "",
            *listed,
            "",
            *textwrap.wrap(f"Fields without a section: {alone}.", _HELP_WIDTH),
            "",
            "jaxrl train --help=SECTION or --help=FIELD explains them, --help=all does",
            "for every field; --print-config shows the values that CONFIG gives them.",
        ]
    )


def field_list(algorithm: str = DEFAULT, part: str = "") -> str:
    """Returns fields with type, default, rules and meaning, by section, at most 80 columns wide.

    They are those of a section or a field, `part`, or all; ConfigError if there is no such one.
    """
    meanings = section_meanings(algorithm)
    fields = declared_fields(algorithm)
    shown = {name: field for name, field in fields.items() if part in ("", name, field.section)}
    if not shown:
        raise ConfigError(
            f"`--help` (={part!r}) must be a section or a field{did_you_mean(part, {*meanings, *fields})}"
        )
    lines = ["Fields, as --config.NAME=VALUE:"]
    last = None
    for name, field in shown.items():
        section = field.section
        if section != last:
            lines += ["", f"{section}: {meanings[section]}"] if section else [""]
            last = section
        indent = " " * _NAME_WIDTH
        text = f"{field.help} ({_facts(field)})"
        wrapped = textwrap.wrap(text, _HELP_WIDTH - _NAME_WIDTH, break_on_hyphens=False)
        start = f"  {name} ".ljust(_NAME_WIDTH)
        if len(start) > _NAME_WIDTH:
            lines.append(start.rstrip())
        else:
            lines.append(start + wrapped.pop(0))
        lines += [indent + line for line in wrapped]
    return "\n".join(lines)


def _facts(field: Field) -> str:
    """`an integer; must be at least 1; default: 64`."""
    value = field.default
    default = str(value).lower() if value is None or isinstance(value, bool) else _literal(value)
    rules = [f"must {rule.text}" for rule in field.rules]
    kept = ["a resumed run keeps it"] if field.fixed else []
    return "; ".join([describe(field.kind), *rules, f"default: {default}", *kept])
