"""Configs in YAML and JSON: the same fields by section, a base, and the sections of other trainers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from jaxrl.config import ConfigError, check_config, default_config
from jaxrl.config.configuration import BUILT_IN
from jaxrl.config.files import SHIPPED, Remarks, load_config, shipped_names
from jaxrl.config.listing import json_file, yaml_file

Write = Callable[..., str]
TEMPLATE = (
    "Every field with its default, as a template: keep what you change; `base: ppo` starts from a shipped "
    "config."
)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(text: str, name: str = "mine.yaml") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return written


def noted(file: str) -> tuple[ConfigDict, list[str]]:
    remarks = Remarks()
    return load_config(file, remarks), remarks.lines


@pytest.mark.parametrize(
    ("name", "file", "text"),
    [*((name, "printed.yaml", yaml_file) for name in shipped_names()), ("ppo", "printed.json", json_file)],
)
def test_printed_file_is_the_same_config(
    name: str, file: str, text: Callable[..., str], write: Write
) -> None:
    config = load_config(name)
    config.ppo.learning_rate = 1e-5  # which YAML 1.1 reads as text
    config.log.name = 'it\'s a "name" with # and \\ and \n in it'
    checked = check_config(config)
    read, notes = noted(write(text(checked), file))
    assert check_config(read) == checked
    assert notes == []


def test_template_has_every_default() -> None:
    text = (SHIPPED / "default.yaml").read_text()
    expected = yaml_file(check_config(default_config()), TEMPLATE)
    assert text == expected + "\n", f"write this to configs/default.yaml:\n{expected}"


@pytest.mark.parametrize("algorithm", BUILT_IN)
def test_yaml_says_every_meaning(algorithm: str) -> None:
    text = yaml_file(check_config(default_config(algorithm)))
    assert max(map(len, text.splitlines())) <= 110
    assert f"\n{algorithm}:\n" in text
    assert "  return: null  # mean return of an evaluation" in text


def test_base_is_a_shipped_config_with_changes(write: Write) -> None:
    file = write(
        "base: ppo_minatar\nseed: 3\nppo:\n  learning_rate: 1e-3\n  schedule: constant\n"
        "stop: {steps: 2e6, return: 50}\nnetwork: {hidden_sizes: [32, 32]}\nlog:\n"
    )
    expected = load_config("ppo_minatar")
    expected.seed, expected.ppo.learning_rate, expected.ppo.schedule = 3, 1e-3, "constant"
    expected.stop.steps, expected.stop["return"], expected.network.hidden_sizes = 2_000_000, 50.0, (32, 32)
    assert check_config(load_config(file)) == check_config(expected)


def test_words_of_yaml_1_1_are_read_by_the_kind_of_the_field(write: Write) -> None:
    config = load_config(
        write("normalize: {observations: on, rewards: No}\nppo: {shard_optimizer: on}\nlog: {name: no}")
    )
    assert (config.normalize.observations, config.normalize.rewards) == (True, False)
    assert (config.ppo.shard_optimizer, config.log.name) == ("on", "no")


def test_other_algorithm_and_dotted_names(write: Write) -> None:
    config = load_config(write('{"algorithm": "pqn", "pqn.q_lambda": 0.5}', "mine.json"))
    assert (config.algorithm, config.pqn.q_lambda) == ("pqn", 0.5)


def test_base_made_for_another_environment_leaves_its_own_words(write: Write) -> None:
    config, notes = noted(write("base: ppo\nenv: {name: 'gymnax:Acrobot-v1'}\n"))
    assert (config.env.wrappers, config.stop["return"]) == ((), None)
    assert len(notes) == 1
    assert "gymnax:Acrobot-v1 with the config ppo: left out" in notes[0]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("ppo: {gama: 0.9}", "`config.ppo.gama` is no field; did you mean `config.ppo.gamma`?"),
        ("ppo: {gamma: high}", "`ppo.gamma` (='high') must be a finite number"),
        ("seed: 010", "`seed` (='010') must be an integer"),
        ("ppo: {schedule: off}", "`ppo.schedule` (='off') must be one of constant, linear, cosine"),
        ("ppo: {gamma: 2}", "`ppo.gamma` (=2) must lie between 0 and 1"),
        ("ppo: 5", "`config.ppo` is a section"),
        ("base: pppo", "`base` (='pppo') is no shipped config; did you mean `ppo`?"),
        ("base: [ppo]", "`base` (=['ppo']) must be the name of a shipped config"),
        ("base: configs/ppo.py", "is no shipped config"),
        ("env: {seed: 1}\nenv: {seed: 2}", "the key 'env' comes twice (line 2)"),
        ("ppo: {gamma: 0.9, gamma: 0.8}", "the key 'gamma' comes twice"),
        ("[1, 2]", "must hold fields by section"),
        ("", "must hold fields by section"),
        ("ppo: [", "must be YAML: "),
        ("a: &a [*a]", "must be YAML: "),
        ("training: 3", "`training` (=3) must hold keys and their values"),
        ("training: {lr: 1, learning_rate: 2}", "both set `learner.learning_rate`: leave one out"),
        ("algorithm: td3", "`algorithm` (='td3')"),
        ("algorithm: 5", "`algorithm` (=5) must be a string"),
    ],
)
def test_what_is_wrong_is_one_line_with_file_and_key(text: str, rule: str, write: Write) -> None:
    file = write(text)
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert str(caught.value).startswith(f"`--config` (={file!r})")
    assert rule in str(caught.value)
    assert "\n" not in str(caught.value)


def test_json_that_is_none_and_a_folder_are_one_line(write: Write, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be JSON: "):
        load_config(write("{", "mine.json"))
    with pytest.raises(ConfigError, match="must be JSON: the key 'ppo' comes twice"):
        load_config(write('{"ppo": {"gamma": 0.9}, "ppo": {"num_epochs": 1}}', "mine.json"))
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(ConfigError, match=r"folder.yaml'\) is no file; valid: \S*/mine.json$"):
        load_config(str(tmp_path / "folder.yaml"))
    with pytest.raises(ConfigError, match=r"did you mean .*mine\.json"):
        load_config(str(tmp_path / "mine.jsn.yaml"))


def test_learner_of_other_layouts_is_the_algorithm_that_is_named(write: Write) -> None:
    config, _ = noted(write("algorithm: pqn\ntraining: {lr: 1e-3, update_epochs: 3}\nmodel: {type: mlp}"))
    assert (config.pqn.learning_rate, config.pqn.num_epochs, config.network.core) == (1e-3, 3, "none")
