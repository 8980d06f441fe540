"""Readers of JSON, JSON lines and YAML: bounded, since a file may come from anyone.

As `jaxrl.envs.bounded_files`, whose readers are here too, these wait for no writer, expand no aliases
without end and do not fill the memory.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from jaxrl.config.errors import ConfigError, did_you_mean
from jaxrl.envs.bounded_files import (
    DEEPEST,
    LARGEST_FILE,
    FilePath,
    open_regular,
    parse_json,
    read_bytes,
    read_json,
    read_object,
    split_lines,
    too_deep,
)

if TYPE_CHECKING:
    import yaml

__all__ = [
    "LARGEST_FILE",
    "LARGEST_LOG",
    "is_number",
    "open_regular",
    "parse_json",
    "parse_line",
    "read_bytes",
    "read_json",
    "read_lines",
    "read_object",
    "read_objects",
    "read_yaml",
    "require_yaml",
    "split_lines",
]

LARGEST_YAML = 2**20  # PyYAML reads 200 KB in a second.
LARGEST_LOG = 2**30  # of lines; a row of metrics takes 2 KB
LONGEST_LINE = 2**20
MOST_NODES = 100_000  # of YAML, with each alias written out
_LONGEST_SCALAR = 1000  # of YAML, unless it is text


def read_lines(path: FilePath) -> list[bytes]:
    """The lines of a file, for `parse_line`; raises OSError as `read_bytes` and `split_lines`."""
    return split_lines(read_bytes(path, LARGEST_LOG), path)


def parse_line(line: bytes) -> dict[str, Any] | None:
    """The object in a line of JSON; None for a line that holds none, such as one that a kill tore."""
    try:
        found = parse_json(line) if len(line) <= LONGEST_LINE else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def is_number(x: Any) -> bool:
    """True if a value of JSON is a number that a float can hold."""
    return isinstance(x, (int, float)) and not isinstance(x, bool) and abs(x) < 1e300


def read_objects(path: FilePath) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines, without torn and damaged lines; raises OSError as `read_bytes`."""
    return (found for line in read_lines(path) if (found := parse_line(line)) is not None)


def require_yaml(
    given: str, path: FilePath, name: str = "", shipped: Callable[[], Collection[str]] | None = None
) -> Any:
    """`read_yaml` of a file that a user names; ConfigError if it cannot be read, or is no YAML.

    `given` is the flag or field with its value, for the message; `name` the value, and `shipped` returns the
    names of shipped files, one of which may be meant.
    """
    try:
        return read_yaml(path)
    except OSError as error:
        hint = did_you_mean(name, shipped()) if shipped else ""
        raise ConfigError(f"{given} cannot be read: {error.strerror or error}{hint}") from error
    except ValueError as error:
        raise ConfigError(f"{given} must be YAML or JSON: {error}") from error


def read_yaml(path: FilePath) -> Any:
    """Reads a file of YAML 1.2 (its core schema), which contains JSON.

    Raises OSError as `read_bytes`; ValueError if it is no YAML, too deep, or its aliases stand for too much.
    """
    import yaml

    text = read_bytes(path, LARGEST_YAML).decode()
    try:
        loader = _loader()(text)
        loader.name = os.path.basename(path)  # in its errors
        if (node := loader.get_single_node()) is None:
            return None
        _extent(node, {})
        return loader.construct_document(node)
    except RecursionError as error:
        raise ValueError(too_deep()) from error
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        # So PyYAML answers `!!timestamp soon`, `!!bool 3` and their like.
        raise ValueError(f"a value is not of the kind that its tag says ({error!r})") from error


@functools.cache
def _loader() -> type[yaml.SafeLoader]:
    """PyYAML's loader for YAML 1.2; its own follow 1.1: 010 is 8, 1:30 is 90, off is false, 1e-3 is text."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    for kind, pattern, first in (
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("null", r"~|null|Null|NULL|", [*"~nN", ""]),
        ("int", r"[-+]?(0|[1-9][0-9_]*)|0x[0-9a-fA-F]+", "-+0123456789"),
        ("float", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
                  r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+.0123456789"),
        ("merge", "<<", "<"),
    ):  # fmt: skip
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"({pattern})$"), list(first))
    return Loader


def _extent(node: yaml.Node, known: dict[int, tuple[int, int] | None]) -> tuple[int, int]:
    """(nodes, levels) of a tree with its aliases written out; `known` has the nodes seen before."""
    import yaml

    if (found := known.get(id(node))) is not None:
        return found
    if id(node) in known:
        raise ValueError("an alias stands inside of what it names")
    known[id(node)] = None
    parts: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if isinstance(key.value, str) and key.value in seen:
                raise ValueError(f"the key {key.value!r} comes twice (line {key.start_mark.line + 1})")
            seen.add(key.value if isinstance(key.value, str) else None)
            parts += [key, value]
    elif isinstance(node, yaml.SequenceNode):
        parts = node.value
    elif not node.tag.endswith(":str") and len(node.value) > _LONGEST_SCALAR:
        raise ValueError(f"a value that is no text has more than {_LONGEST_SCALAR} characters")
    nodes, levels = 1, 1
    for part in parts:
        more, below = _extent(part, known)
        nodes += more
        levels = max(levels, below + 1)
    if nodes > MOST_NODES:
        raise ValueError(f"it holds more than {MOST_NODES:,} values, with each alias written out")
    if levels > DEEPEST:
        raise ValueError(too_deep())
    known[id(node)] = nodes, levels
    return nodes, levels
