"""Config files of other trainers: sections such as model, training and tpu, or those of rl-baselines3-zoo."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from jaxrl.config import words
from jaxrl.config.configuration import BUILT_IN
from jaxrl.config.converted_counts import Size
from jaxrl.config.declarations import COMMON, declared_fields
from jaxrl.config.errors import ConfigError, did_you_mean
from jaxrl.config.fields import Field, shorten
from jaxrl.config.overrides import read_value

LEARNER = "learner."  # begins the fields of the algorithm, whichever it is


@dataclasses.dataclass
class Translation:
    """A config file of another trainer, in our fields.

    Attributes:
      fields: by dotted name, or by section as in the file; the algorithm's begin with `LEARNER`.
      sizes: numbers that become counts by a rule, see `converted_counts`.
      left_out: the keys without a counterpart, each with a hint.
      is_foreign: True if there is a section of another trainer.
      origin: the key that sets each field.
      has_no_core: True if the kind of network has none, unless a key names one.
    """

    fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    sizes: dict[str, Size] = dataclasses.field(default_factory=dict)
    left_out: list[str] = dataclasses.field(default_factory=list)
    is_foreign: bool = False
    has_no_core: bool = False
    origin: dict[str, str] = dataclasses.field(default_factory=dict)

    def say(self, name: str, field: str, value: Any) -> None:
        """Sets a field to the value of their key `name`; ConfigError if another key sets it to another."""
        value = _value(field, value)
        if field in self.origin and self.fields[field] != value:
            raise ConfigError(f"`{self.origin[field]}` and `{name}` both set `{field}`: leave one out")
        declared = _declared(field)
        choices = [choice for rule in declared.rules for choice in rule.choices] if declared else []
        if choices and value not in choices:
            self.left_out.append(f"{name} (={shorten(value)})")
            return
        self.origin.setdefault(field, name)
        self.fields[field] = value

    def size(self, name: str, word: str, value: Any) -> None:
        """Takes over a number that becomes a count, if it is one."""
        number = read_value(value, int)
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            self.left_out.append(f"{name} (={shorten(value)})")
        elif word in self.sizes and self.sizes[word].value != number:
            raise ConfigError(f"`{self.sizes[word].name}` and `{name}` both set the same: leave one out")
        else:
            self.sizes.setdefault(word, Size(name, number))


def translate(data: Mapping[Any, Any]) -> Translation:
    """Translates a file whose sections may be other trainers'; without any of these it stays unchanged.

    Raises ConfigError if two keys set the same field to different values.
    """
    found = Translation()
    sections = words.table().sections
    is_name = not isinstance(data.get("algorithm"), Mapping)  # of an algorithm, and no section
    theirs = [key for key in sections if key in data and not (key == "algorithm" and is_name)]
    found.is_foreign = bool(theirs)
    for key, value in data.items():
        if key not in theirs:
            if theirs and _is_foreign(data, key):
                _translate_key(found, "", str(key), value)
            else:
                found.fields[str(key)] = value
    for section in theirs:
        values = data[section]
        if values is not None and not isinstance(values, Mapping):
            raise ConfigError(f"`{section}` (={shorten(values)}) must hold keys and their values")
        writers = []
        for key, value in (values or {}).items():
            if section == "logging" and _writer(key) and isinstance(value, bool):
                writers += [_writer(key)] if value else []
            else:
                _translate_key(found, section, str(key), value)
        if writers:
            found.fields["log.writers"] = ["jsonl", *writers]
    if found.has_no_core:
        found.fields.setdefault("network.core", "none")
    return found


def _is_foreign(data: Mapping[Any, Any], key: Any) -> bool:
    """True of a key beside others' sections that is neither ours nor of an algorithm from outside."""
    name = str(key)
    algorithm = data.get("algorithm")
    if isinstance(algorithm, str) and algorithm.lower() not in BUILT_IN:
        return False
    return "." not in name and name not in {*COMMON, *BUILT_IN, *declared_fields()}


def _translate_key(found: Translation, section: str, key: str, value: Any) -> None:
    """Takes one key over; `section` is theirs, "" for a key without one."""
    name = f"{section}.{key}" if section else key
    word = words.normalize_word(key)
    names = words.table()
    size = names.sections.get(section, {}).get("sizes", {}).get(word) or names.sizes.get(word)
    if isinstance(value, Mapping):
        found.left_out.append(name)
    elif size:
        found.size(name, size, value)
    elif section == "model" and word in names.network_kinds and isinstance(value, str):
        _translate_network(found, name, value)
    elif section == "model" and word in ("hidden-size", "hidden-dim") and isinstance(value, int):
        for field in ("network.hidden_sizes", "network.core_size"):
            found.say(name, field, value)
    elif field := _field_of(section, word):
        declared = _declared(field)
        if value is not None or (declared is not None and declared.default is None):
            found.say(name, field, value)
    elif value is not None:
        hint = words.flag_hint(key).removeprefix("; ")
        found.left_out.append(f"{name} ({hint})" if hint else name)


def _field_of(section: str, word: str) -> str:
    """Our field for a word in a section of theirs; "" if it has no counterpart."""
    known = words.table().sections.get(section, {})
    keys: Mapping[str, str] = known.get("keys", {})
    if word in keys:
        return keys[word]
    attribute = word.replace("-", "_")
    declared = declared_fields()
    for ours in known.get("ours", ()):
        if ours == "learner" and any(f"{name}.{attribute}" in declared for name in BUILT_IN):
            return LEARNER + attribute
        if ours != "learner" and (field := f"{ours}.{attribute}" if ours else attribute) in declared:
            return field
    return words.field_of(word).replace("ppo.", LEARNER, 1)


def _translate_network(found: Translation, name: str, value: str) -> None:
    """A kind of network, which may also be the name of an algorithm, or of a core."""
    names = words.table()
    word = words.normalize_word(value) if ":" not in value else value
    if word in BUILT_IN:
        found.say(name, "algorithm", word)
    elif word in names.recurrent:
        found.say(name, "algorithm", names.recurrent[word])
        found.say(name, "network.core", "lstm")
    elif word in names.without_memory:
        found.has_no_core = True
    elif word.replace("-", "_") in names.cores or ":" in word:
        found.say(name, "network.core", word.replace("-", "_"))
    else:
        found.left_out.append(f"{name} (={shorten(value)})")


def _declared(field: str) -> Field | None:
    return declared_fields().get(field.replace(LEARNER, "ppo.", 1))


def _value(field: str, value: Any) -> Any:
    values = words.table().values
    if field in values and isinstance(value, (str, bool)):
        word = value.lower() if isinstance(value, str) and ":" not in value else value
        return values[field].get(word, word)
    if field == "algorithm" and isinstance(value, str) and value.lower() in BUILT_IN:
        return value.lower()
    return [value] if field == "network.hidden_sizes" and isinstance(value, int) else value


def _writer(key: Any) -> str:
    """The writer that `wandb: true`, `use_wandb: true` or `log_to_wandb: true` asks for; "" if it is none."""
    word = words.normalize_word(str(key)).removeprefix("use-").removeprefix("log-to-")
    return word if word in words.table().writers else ""


# Of `CnnPolicy`, behind the convolutions that pictures get by themselves.
_CNN = {"hidden_sizes": [512], "activation": "relu", "separate_value": False}


def is_zoo(data: Mapping[Any, Any]) -> bool:
    """True if sections are environments, as the files of rl-baselines3-zoo have them."""
    return any(
        isinstance(section, Mapping) and {"n_timesteps", "policy"} <= section.keys()
        for section in data.values()
    )


def read_zoo_section(data: Mapping[Any, Any], path: str, environment: str) -> dict[str, Any]:
    """The section of one environment of a file of rl-baselines3-zoo, for `translate`.

    Args:
      data: of the file.
      path: its name gives the algorithm, such as `ppo.yml`; ConfigError if there is no such one here.
      environment: its name here or there, `CartPole-v1` or `gymnax:CartPole-v1`; ConfigError without section.
    """
    name = environment.partition("(")[0].rpartition(":")[2]
    known = [key for key in data if isinstance(key, str) and isinstance(data[key], Mapping)]
    if name not in known and "atari" in known and _is_game(environment, name, known):
        name = "atari"
    if name not in known:
        hint = did_you_mean(name, known) if name else f", of {len(known)} such as {known[-1]}"
        raise ConfigError(f"it has a section for each environment of rl-zoo: choose one by --env=NAME{hint}")
    algorithm = os.path.splitext(os.path.basename(path))[0]
    algorithms = words.table().zoo
    if algorithm not in algorithms:
        raise ConfigError(f"its name must be an algorithm, one of {', '.join(algorithms)}, not {algorithm!r}")
    section = {key: value for key, value in data[name].items() if value is not None}
    left_out = {}
    training = dict(algorithms[algorithm]["training"])
    environments = section.pop("n_envs", 1)
    normalize = section.pop("normalize", False)
    is_cnn = str(section.pop("policy", "")).startswith("Cnn")
    for key, value in section.items():
        falls = isinstance(value, str) and value.startswith("lin_")
        training[key] = value.removeprefix("lin_") if falls else value
        if falls and key == "learning_rate":
            training["schedule"] = "linear"
        elif falls:
            left_out[f"{key} falling to 0"] = value
    if not isinstance(training.get("train_freq", 1), int):  # [1, "episode"]
        left_out["train_freq in episodes"] = training["train_freq"]
        training["train_freq"] = algorithms[algorithm]["training"]["train_freq"]
    if training.get("gradient_steps") == -1:  # as many as there were steps
        training["gradient_steps"] = int(training["train_freq"]) * int(environments)
    _convert(training, algorithm)
    place: dict[str, Any] = {"name": environment, "num_envs": environments}
    if isinstance(normalize, bool):
        place |= {"normalize_obs": normalize, "normalize_reward": normalize}
    else:
        left_out["normalize"] = normalize
    return {
        "algorithm": algorithm.removesuffix("_lstm"),
        "model": {**algorithms[algorithm]["network"], **(_CNN if is_cnn else {})},
        "environment": place,
        "training": training | left_out,
    }


def _convert(training: dict[str, Any], algorithm: str) -> None:
    """Changes the numbers that mean something else in Stable-Baselines3."""
    # There the value loss is the squared error, not half of it, and updates end beyond 1.5 times the target.
    for key, factor in (("vf_coef", 2.0), ("target_kl", 1.5)):
        if isinstance(value := training.get(key), int | float):
            training[key] = factor * value
    if algorithm != "sac":
        return
    # One rate is for all three optimisers.
    training |= dict.fromkeys(("critic_rate", "temperature_rate"), training["learning_rate"])
    # "auto", "auto_0.1", or a number that stays.
    coefficient = training.pop("ent_coef", "auto")
    learns = str(coefficient).startswith("auto")
    training["learn_temperature"] = learns
    training["temperature"] = (coefficient.partition("_")[2] or 1.0) if learns else coefficient
    if training.get("target_entropy") == "auto":
        del training["target_entropy"]


def _is_game(environment: str, name: str, known: Sequence[str]) -> bool:
    """True of games of Atari, which have one section together."""
    others = any(key.rpartition("-v")[0] == name.rpartition("-v")[0] for key in known)
    is_named = "ALE/" in environment or "NoFrameskip" in name
    return is_named or (environment.startswith("envpool:") and name.endswith("-v5") and not others)
