"""Spaces: what they may say, which values they give, and one line for each that is wrong."""

from __future__ import annotations

import collections
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl.config import ConfigError, default_config
from jaxrl.config.files import load_config
from jaxrl.search.search_options import SearchOptions
from jaxrl.search.space import Space, _require_written, require_trainable
from jaxrl.search.study import GridSampler, RandomSampler
from jaxrl.search.trials import StudyTrial, Task

ROOT = Path(__file__).parents[2]
RATE = "ppo.learning_rate"
# A space, and what its error says.
BAD: dict[str, tuple[Any, str]] = {
    "no space": ({}, "the space is empty"),
    "unknown field": ({"ppo.learning_rat": {"log": [1e-5, 1e-2]}}, "did you mean `ppo.learning_rate`?"),
    "section": ({"ppo": {"log": [1, 2]}}, "is a section"),
    "no form": ({RATE: 1e-5}, "must be one of {choice"),
    "unknown form": ({RATE: {"logarithmic": [1e-5, 1e-2]}}, "must be one of {choice"),
    "two forms": ({RATE: {"log": [1e-5, 1e-2], "uniform": [0.1, 0.2]}}, "must be one of {choice"),
    "unknown key": ({RATE: {"log": [1e-5, 1e-2], "point": 3}}, "did you mean `points`?"),
    "few points": ({RATE: {"log": [1e-5, 1e-2], "points": 1}}, "`points` (=1) must be"),
    "empty choice": ({"network.core": {"choice": []}}, "not empty"),
    "same choice twice": ({"network.core": {"choice": ["gru", "gru"]}}, "holds a value twice"),
    "wrong type": ({"ppo.num_epochs": {"choice": [1, "two"]}}, "must be an integer"),
    "rule of a choice": ({"network.recurrence": {"choice": ["scan", "scam"]}}, "must be one of auto"),
    "rule of a bound": ({"ppo.gamma": {"uniform": [0.9, 1.1]}}, "must lie between 0 and 1"),
    "log of zero": ({RATE: {"log": [0, 1e-2]}}, "must be above 0"),
    "log of less": ({RATE: {"log": [-1e-3, 1e-2]}}, "must be above 0"),
    "reversed": ({RATE: {"log": [1e-2, 1e-5]}}, "a lower and then a higher"),
    "equal": ({RATE: {"uniform": [1e-2, 1e-2]}}, "a lower and then a higher"),
    "one bound": ({RATE: {"uniform": [1e-2]}}, "two finite numbers"),
    "text bounds": ({RATE: {"uniform": ["low", "high"]}}, "two finite numbers"),
    "infinite": ({RATE: {"uniform": [0.1, float("inf")]}}, "two finite numbers"),
    "fractions": ({"ppo.num_epochs": {"int": [1, 2.5]}}, "two integers"),
    "uniform integer": ({"ppo.num_epochs": {"uniform": [1, 3]}}, "write `int`"),
    "range of text": ({"network.core": {"int": [1, 3]}}, "give a choice"),
    "range of a tuple": ({"network.hidden_sizes": {"int": [8, 64]}}, "give a choice"),
    "range of a switch": ({"normalize.rewards": {"int": [0, 1]}}, "give a choice"),
    "argument of no name": ({"ppo.gamma(x)": {"int": [1, 2]}}, "must be a field"),
    "wrapper without argument": ({"env.wrappers(x)": {"int": [1, 2]}}, "env.wrappers(WRAPPER.ARGUMENT)"),
    "field and argument": (
        {"env.name": {"choice": ["gymnax:Acrobot-v1"]}, "env.name(x)": {"int": [1, 2]}},
        "change the same field",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_space_is_one_line(name: str) -> None:
    space, text = BAD[name]
    with pytest.raises(ConfigError) as raised:
        Space.parse(space)
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)


def test_bare_list_is_a_choice() -> None:
    short = Space.parse({"ppo.gamma": [0.9, 0.99], "network.core": ["lstm", "gru"]})
    assert short == Space.parse(
        {"ppo.gamma": {"choice": [0.9, 0.99]}, "network.core": {"choice": ["lstm", "gru"]}}
    )


def test_file_is_yaml_or_json(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text("ppo.learning_rate: {log: [1e-5, 1e-2]}  # YAML takes these for text\n")
    (rate,) = Space.read(str(file)).dimensions
    assert (rate.low, rate.high) == (1e-5, 1e-2)
    file.write_text(json.dumps({"network.core": {"choice": ["gru", "lstm"]}}))
    assert Space.read(str(file)).dimensions[0].choices == ("gru", "lstm")
    for text in ("", "[1, 2]", "a: [", "just words"):
        file.write_text(text)
        with pytest.raises(ConfigError, match="--space"):
            Space.read(str(file))


def test_space_survives_json() -> None:
    space = Space.parse(
        {RATE: {"log": [1e-5, 1e-2], "points": 5}, "network.hidden_sizes": {"choice": [[64], [8, 8]]}}
    )
    assert Space.parse(json.loads(json.dumps(space.to_json()))) == space


def test_uniform_draws_are_uniform_in_the_right_scale() -> None:
    units = (np.arange(4000) + 0.5) / 4000
    space = Space.parse(
        {
            RATE: {"log": [1e-4, 1e-2]},
            "ppo.gamma": {"uniform": [0.9, 1.0]},
            "ppo.num_epochs": {"int": [1, 4]},
            "network.core": {"choice": ["gru", "lstm"]},
            "network.core_size": {"log": [1, 256]},
        }
    )
    rate, gamma, epochs, core, size = space.dimensions
    assert rate.at(0.5) == pytest.approx(1e-3)  # the geometric mean
    assert gamma.at(0.5) == pytest.approx(0.95)
    assert collections.Counter(epochs.at(u) for u in units) == {1: 1000, 2: 1000, 3: 1000, 4: 1000}
    assert collections.Counter(core.at(u) for u in units) == {"gru": 2000, "lstm": 2000}
    sizes = [size.at(u) for u in units]
    assert (min(sizes), max(sizes)) == (1, 256)
    assert np.median(sizes) == pytest.approx(16, abs=2)  # halfway between 1 and 256 in a logarithm
    for dimension in space.dimensions:
        assert [dimension.coordinate(x) for x in dimension.extremes] == pytest.approx([0, 1])


def test_values_go_into_fields_and_arguments() -> None:
    config = default_config()
    config.env.name = "gymnax:MemoryChain-bsuite(memory_length=5)"
    config.env.wrappers = ("previous_action", "sticky_actions(probability=0.5)")
    space = Space.parse(
        {
            "env.name(memory_length)": {"int": [3, 9]},
            "env.wrappers(sticky_actions.probability)": {"uniform": [0.0, 0.5]},
            "network.hidden_sizes": {"choice": [[64, 64], [32]]},
            "stop.return": {"uniform": [1, 2]},
        }
    )
    names = [dimension.name for dimension in space.dimensions]
    changed = space.apply(config, dict(zip(names, (7, 0.25, (32,), 1.5), strict=True)))
    assert changed.env.name == "gymnax:MemoryChain-bsuite(memory_length=7)"
    assert changed.env.wrappers == ("previous_action", "sticky_actions(probability=0.25)")
    assert changed.network.hidden_sizes == (32,)
    assert changed.stop["return"] == 1.5
    assert config.env.name.endswith("(memory_length=5)"), "the configuration itself stays"
    config.env.wrappers = ()
    with pytest.raises(ConfigError, match="has no sticky_actions"):
        space.probes(config)


@pytest.mark.slow
def test_environments_and_networks_are_made_before_any_trial() -> None:
    config = load_config("ppo_mlp")
    for space, text in (
        ({"env.name": {"choice": ["gymnax:CartPole-v1", "gymnax:CartPole-v7"]}}, "CartPole-v7"),
        ({"network.core": {"choice": ["lstm", "gnu"]}}, "did you mean `gru`?"),
    ):
        with pytest.raises(ConfigError) as raised:
            require_trainable(Space.parse(space).probes(config))
        assert text in str(raised.value)
    # Minibatches that only fit other numbers of environments are for `problem` to leave out.
    counts = {"env.num_envs": {"choice": [16, 24]}, "ppo.num_minibatches": {"choice": [3, 4]}}
    require_trainable(Space.parse(counts).probes(config))


@pytest.mark.slow
def test_a_metric_that_no_run_writes_is_refused_before_any_trial() -> None:
    config, space = load_config("ppo_mlp"), Space.parse({"ppo.gamma": {"choice": [0.9, 0.99]}})
    names = require_trainable(space.probes(config), "eval/sampled/return")
    for metric in ("eval/return", "ppo/approx_kl", "time/steps_per_second"):
        _require_written(metric, names)  # a process less than `require_trainable`
    with pytest.raises(ConfigError) as raised:
        require_trainable(space.probes(config), "eval/retrun")
    said = str(raised.value)
    assert said.startswith("`--metric` (='eval/retrun'): no run writes it; those are episode/count, ")
    assert "eval/return, eval/return_std" in said
    with pytest.raises(ConfigError, match="no run writes it"):
        _require_written("eval/sampled/retrun", names)
    with pytest.raises(ConfigError, match=r"no run writes it; here it is `eval/return`$"):
        _require_written("mean_reward", names)
    assert "\n" not in said


def all_points(sampler: GridSampler) -> list[tuple[Any, ...]]:
    """The values of its trials, one after the other."""
    trials: list[StudyTrial] = []
    while (values := sampler.point(len(trials), trials)) is not None:
        trials.append(StudyTrial(len(trials), values))
    return [tuple(trial.values.values()) for trial in trials]


def test_grid_has_every_valid_combination_once() -> None:
    config = load_config("ppo_mlp")
    space = Space.parse(
        {
            "env.num_envs": {"choice": [16, 24]},
            "ppo.num_minibatches": {"choice": [3, 4]},
            RATE: {"log": [1e-4, 1e-2]},
        }
    )
    sampler = GridSampler(Task(config, space, SearchOptions(trials=20)))
    points = all_points(sampler)
    counts = [(16, 4), (24, 3), (24, 4)]  # 3 does not divide 16
    assert [p[:2] for p in points] == [c for c in counts for _ in range(3)]
    assert [p[2] for p in points[:3]] == pytest.approx([1e-4, 1e-3, 1e-2])
    assert (sampler.size, sampler.invalid) == (9, 3)
    some = all_points(GridSampler(Task(config, space, SearchOptions(trials=4))))[:4]
    assert len(set(some)) == 4
    assert set(some) < set(points)
    assert some != points[:4]
    impossible = Space.parse({"ppo.num_minibatches": {"choice": [3]}})
    with pytest.raises(ConfigError, match="no combination of the space is valid: .*must divide"):
        GridSampler(Task(config, impossible, SearchOptions()))


def test_a_grid_with_more_trials_than_before_tries_what_is_left() -> None:
    space = Space.parse({"ppo.num_epochs": {"int": [1, 3]}, "network.hidden_sizes": [[8], [8, 8]]})
    trials: list[StudyTrial] = []
    for budget in (2, 4, 6):  # a random part, another, and all
        sampler = GridSampler(Task(load_config("ppo_mlp"), space, SearchOptions(trials=budget)))
        for number in range(len(trials), budget):
            values = sampler.point(number, trials)
            assert values is not None
            trials.append(StudyTrial(number, values))
    assert sampler.point(6, trials) is None
    found = [(trial.values["ppo.num_epochs"], trial.values["network.hidden_sizes"]) for trial in trials]
    assert sorted(found) == [(epochs, sizes) for epochs in (1, 2, 3) for sizes in ((8,), (8, 8))]


def test_random_points_depend_on_seed_and_number_alone() -> None:
    config = load_config("ppo_mlp")
    space = Space.parse({RATE: {"log": [1e-4, 1e-2]}, "ppo.num_minibatches": {"int": [1, 8]}})
    before = [StudyTrial(0, {})]

    def sampler(seed: int) -> RandomSampler:
        return RandomSampler(Task(config, space, SearchOptions(seed=seed)))

    points = [sampler(0).point(number, ()) for number in range(40)]
    assert points[7] == sampler(0).point(7, before)
    assert points[7] != sampler(1).point(7, ())
    assert {p["ppo.num_minibatches"] for p in points if p} == {1, 2, 4, 8}, "32 environments"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a [*a]", "must be YAML or JSON: an alias stands inside of what it names"),
        ("[" * 100_000, "must be YAML or JSON: it is nested more than 100 levels deep"),
        ("#" * 2**21, "cannot be read: it is larger than 1 MiB"),
    ],
)
def test_a_file_without_end_is_one_error(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        Space.read(str(tmp_path / "space.yaml"))


@pytest.mark.parametrize(
    "file", sorted((ROOT / "configs/searches").glob("*.yaml")), ids=lambda file: file.stem
)
def test_a_shipped_space_fits_the_config_of_its_command(file: Path) -> None:
    text = file.read_text()
    assert f"--space=configs/searches/{file.name}" in text
    assert all(f"# {heading}" in text for heading in ("Budget:", "Found:"))
    config = load_config(re.search(r"jaxrl search (\w+)", text)[1])  # type: ignore[index]
    assert Space.read(str(file)).probes(config)
