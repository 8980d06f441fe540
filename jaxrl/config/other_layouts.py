"""Config files with the sections of other trainers: model, environment, training, tpu and logging."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxrl.config import words
from jaxrl.config.built_in import BUILT_IN, DEFAULT
from jaxrl.config.declarations import declared_fields
from jaxrl.config.errors import ConfigError
from jaxrl.config.fields import shorten

# Each section of theirs, with those of ours in which a key of the same name is looked for.
_SECTIONS = {
    "model": ("network",),
    "environment": ("env", "host"),
    "training": ("learner", "", "stop", "evaluate", "checkpoint"),
    "tpu": ("",),
    "logging": ("log", "evaluate", "checkpoint", "storage"),
}
_KEYS = {
    "model": {
        "architecture": "network.core",
        "recurrent-type": "network.core",
        "rnn-type": "network.core",
        "type": "network.core",
        "use-lstm": "network.core",
        "lstm-hidden-dim": "network.core_size",
        "lstm-units": "network.core_size",
        "hidden-layers": "network.hidden_sizes",
        "dtype": "network.compute_dtype",
    },
    "environment": {
        "id": "env.name",
        "normalize-obs": "normalize.observations",
        "normalize-observations": "normalize.observations",
        "normalize-reward": "normalize.rewards",
        "normalize-rewards": "normalize.rewards",
    },
    "training": {
        "anneal-lr": "learner.schedule",
        "clip-epsilon": "learner.clip_range",
        "entropy-coefficient": "learner.entropy_coef",
        "eval-episodes": "evaluate.episodes",
        "mixed-precision": "network.compute_dtype",
        "value-coefficient": "learner.value_coef",
        "value-loss-coef": "learner.value_coef",
    },
    "tpu": {
        "bf16": "network.compute_dtype",
        "bfloat16": "network.compute_dtype",
        "cores": "num_devices",
        "dtype": "network.compute_dtype",
        "mixed-precision": "network.compute_dtype",
        "num-cores": "num_devices",
        "use-bf16": "network.compute_dtype",
        "use-bfloat16": "network.compute_dtype",
    },
    "logging": {"run-name": "log.name", "s3-bucket": ""},
}
_WRITERS = ("tensorboard", "wandb", "mlflow", "neptune", "csv")
# Their values of fields that take names.
_VALUES: dict[str, dict[Any, str]] = {
    "network.core": {True: "lstm", False: "none", "mlp": "none", "feedforward": "none", "cnn": "none"},
    "network.compute_dtype": {True: "bfloat16", False: "float32", "bf16": "bfloat16", "fp32": "float32"},
    "learner.schedule": {True: "linear", False: "constant"},
}


def translate(data: Mapping[Any, Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns the data with other trainers' sections as our fields, and the keys that have no counterpart.

    Fields of the algorithm have the section `learner`; sections that are no others' stay as they are.

    Raises:
      ConfigError: two keys say the same field.
    """
    said = {str(key): value for key, value in data.items() if key not in _SECTIONS}
    origin: dict[str, str] = {}
    unknown: list[str] = []
    for section in _SECTIONS:
        values = data.get(section)
        if values is not None and not isinstance(values, Mapping):
            raise ConfigError(f"`{section}` (={shorten(values)}) must hold keys and their values")
        writers = []
        for key, value in (values or {}).items():
            name = f"{section}.{key}"
            if section == "logging" and _writer(key) and isinstance(value, bool):
                writers += [_writer(key)] if value else []
                continue
            found = _fields_of(section, str(key), value)
            if not found:
                unknown.append(name + words.field_hint(str(key)).replace("; here it is", ": set"))
            for field in found:
                if field in origin:
                    raise ConfigError(f"`{origin[field]}` and `{name}` both say `{field}`: leave one out")
                origin[field] = name
                said[field] = _value(field, value)
        if writers:
            said["log.writers"] = ["jsonl", *writers]
    return said, unknown


def _fields_of(section: str, key: str, value: Any) -> list[str]:
    """Our fields for a key of theirs; none if it has no counterpart."""
    word = words.normalize_word(key)
    if isinstance(value, Mapping):
        return []
    if section == "model" and word in ("hidden-size", "hidden-dim") and isinstance(value, int):
        return ["network.hidden_sizes", "network.core_size"]
    if word in _KEYS[section]:
        return [name for name in [_KEYS[section][word]] if name]
    declared = declared_fields()
    for ours in _SECTIONS[section]:
        prefix = {"": "", "learner": "ppo."}.get(ours, f"{ours}.")
        for name, field in declared.items():
            if name.startswith(prefix) and name.removeprefix(prefix).replace("_", "-") == word:
                return [f"learner.{field.attribute}" if ours == "learner" else name]
    known = words.field_of(key)
    others = tuple(f"{name}." for name in BUILT_IN if name != DEFAULT)
    alike = (
        [known]
        if known
        else [n for n in declared if words.normalize_word(n) == word and not n.startswith(others)]
    )
    return [alike[0].replace("ppo.", "learner.", 1)] if len(alike) == 1 else []


def _value(field: str, value: Any) -> Any:
    if field in _VALUES and isinstance(value, (str, bool)):
        word = value.lower() if isinstance(value, str) and ":" not in value else value
        return _VALUES[field].get(word, word)
    return [value] if field == "network.hidden_sizes" and isinstance(value, int) else value


def _writer(key: Any) -> str:
    """The writer that `wandb: true`, `use_wandb: true` or `log_to_wandb: true` asks for; "" if it is none."""
    word = words.normalize_word(str(key)).removeprefix("use-")
    return word if word in _WRITERS else ""
