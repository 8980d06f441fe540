"""The answers to other trainers' words for things with another name here, and to their files."""

from __future__ import annotations

import dataclasses
import functools
import os
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrl.config.configuration import BUILT_IN, constant_of
from jaxrl.config.data_files import LARGEST_FILE, read_yaml
from jaxrl.config.errors import did_you_mean
from jaxrl.config.local_files import is_remote


@dataclasses.dataclass(frozen=True)
class TrainerWords:
    """The table `other_trainers.yaml`, with words as `normalize_word` gives them."""

    fields: Mapping[str, str]
    notes: Mapping[str, str]
    flags: Mapping[str, str]
    other_flags: Mapping[str, str]
    metrics: Mapping[str, str]
    sections: Mapping[str, Mapping[str, Any]]
    sizes: Mapping[str, str]
    values: Mapping[str, Mapping[Any, Any]]
    network_kinds: Sequence[str]
    writers: Sequence[str]
    without_memory: Sequence[str]
    cores: Sequence[str]
    recurrent: Mapping[str, str]
    zoo: Mapping[str, Mapping[str, Mapping[str, Any]]]


@functools.cache
def table() -> TrainerWords:
    """Reads it at the first use; raises TypeError if a part is missing or unknown."""
    return TrainerWords(**read_yaml(Path(__file__).with_name("other_trainers.yaml")))


def normalize_word(word: str) -> str:
    """`total-timesteps` of `train.total_timesteps` or `TOTAL_TIMESTEPS`."""
    return word.rpartition(".")[2].rpartition("/")[2].replace("_", "-").lower()


def field_of(word: str) -> str:
    """The field that takes the value of another trainer's word as it is; "" if there is none."""
    key = normalize_word(word)
    return "" if key in table().notes else table().fields.get(key, "")


def field_hint(word: str, section: str = "ppo", declared: Collection[str] = ()) -> str:
    """Ends an error about an unknown field with ours, of `section` if declared; "" if the word is unknown."""
    key = normalize_word(word)
    if key not in table().fields:
        return ""
    own = table().fields[key].replace("ppo.", f"{section}.", 1)
    return f"; here it is `{own if own in declared else table().fields[key]}`{table().notes.get(key, '')}"


def unknown_field_hint(name: str, declared: Collection[str], section: str, prefix: str = "") -> str:
    """Ends an error about the unknown field `name`, dotted; `prefix` is put before the field that is shown.

    Several algorithms have fields of one name. So a field of the run's own section comes first if it has the
    name's last part, then the words of other trainers, then the nearest field that the run reads. The section
    that `name` begins with is looked at too, whether or not it is the run's.
    """
    if (constant := constant_of(name)) is not None:
        return f", since it has the value {constant} in every run"
    given, _, last = name.rpartition(".")
    if f"{section}.{last}" in declared:
        return f"; did you mean `{prefix}{section}.{last}`?"
    others = BUILT_IN.keys() - {section, given}
    read = [field for field in declared if field.partition(".")[0] not in others]
    return field_hint(name, section, declared) or did_you_mean(name, read, prefix=prefix)


def flag_hint(word: str, fields: Iterable[str] = (), flags: Mapping[str, str] | None = None) -> str:
    """Ends an error about a flag that does not exist, without its dashes; "" if the word is not known.

    The last part of one of `fields` is a known word too; `flags` has the flags of fields that have one.
    """
    key = normalize_word(word)
    if key in table().flags:
        answer = table().flags[key]
        return f"; here it is {answer}" if answer.startswith("`") else f"; {answer}"
    own = [field for field in fields if normalize_word(field) == key]
    # A word with a note means something else elsewhere, whatever fields of that name there are.
    field = own[0] if own and key not in table().notes else table().fields.get(key, "")
    if not field:
        return ""
    return f"; here it is `{(flags or {}).get(field, f'--config.{field}=VALUE')}`{table().notes.get(key, '')}"


def other_flag(word: str, flags: Collection[str]) -> str:
    """The one of a command's flags that does what another's `word` does; "" if there is none."""
    key = normalize_word(word)
    if table().other_flags.get(key) in flags:
        return table().other_flags[key]
    longer = [flag for flag in flags if flag.startswith(f"{key}-")]
    return longer[0] if len(longer) == 1 else ""


def metric_hint(word: str) -> str:
    """Ends an error about a metric that does not exist; "" if the word is not known."""
    key = normalize_word(word)
    return f"; here it is `{table().metrics[key]}`" if key in table().metrics else ""


_SB3 = "_stable_baselines3_version"  # a file in what `model.save` writes
_WEIGHTS = (".pt", ".pth", ".cleanrl_model", ".safetensors")


def described_file(path: str) -> str:
    """In words what a path holds, and what to do instead; "" if it is nothing known."""
    if is_remote(path) or not os.path.exists(path):
        return ""
    if os.path.isdir(path):
        if os.path.isfile(os.path.join(path, ".hydra", "config.yaml")):
            return (
                "is the folder of a run that Hydra configured: its parameters cannot be read here; the "
                "settings are in .hydra/config.yaml (docs/coming_from.md)"
            )
        return ""
    if path.endswith(_WEIGHTS):
        return "holds the parameters of another trainer's network, which cannot be read here; train again"
    if _is_sb3(path):
        return (
            "is a model of Stable-Baselines3, which cannot be read here; train again with its settings, or "
            "clone episodes that it plays (docs/coming_from.md, docs/imitation.md)"
        )
    return ""


def in_place_of_run(path: str) -> str:
    """As `described_file`, of what stands where the folder of a run should."""
    if found := described_file(path):
        return found
    if os.path.isfile(os.path.join(path, "policy.json")):
        return "is an exported policy, without the run: docs/export.md has how each format acts"
    if os.path.isfile(path):
        return "is a file, and a run is a folder; settings are read by jaxrl train --config=FILE"
    if is_remote(path):
        return ""
    folder = Path(path)
    if not folder.exists():
        return "is no folder"
    for inside in (folder.absolute(), folder.absolute().parent):
        if inside.name == "checkpoints" and _is_run(inside.parent):
            return f"is inside of the run {inside.parent}: name that"
    below = (file.parent for depth in ("*", "*/*") for file in sorted(folder.glob(f"{depth}/config.json")))
    for run in filter(_is_run, below):
        return f"holds runs, such as {run}: name one of them"
    return ""


def _is_run(folder: Path) -> bool:
    return (folder / "config.json").is_file() and (folder / ".run").is_file()


def _is_sb3(path: str) -> bool:
    if os.path.getsize(path) > LARGEST_FILE:
        return path.endswith(".zip")
    try:
        with zipfile.ZipFile(path) as archive:
            return _SB3 in archive.namelist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return False
