"""Definitions of pipelines: sections, their other names, flags and fields; refusals; which stages run."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxrl.commands import run
from jaxrl.commands.pipeline import command_flags
from jaxrl.config.files import load_config, shipped_file, shipped_names
from jaxrl.pipeline import definition
from jaxrl.pipeline.digests import StagePlaces
from jaxrl.pipeline.pipeline_folder import StageRecord, difference
from jaxrl.pipeline.plan import StageSelection
from jaxrl.pipeline.settings import STAGES
from jaxrl.pipeline.stages import build
from tests.commands.refusals import refused

SEARCHED = "search: {enabled: true, space: {ppo.gamma: {uniform: [0.9, 1.0]}}}\n"


def read(tmp_path: Path, text: str) -> definition.PipelineDefinition:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    return definition.read(str(file), command_flags())


def commands(pipeline: definition.PipelineDefinition) -> dict[str, list[str]]:
    return {
        name: [step.line for step in stage.steps] for name, stage in build(pipeline, StagePlaces("p")).items()
    }


def test_an_empty_section_takes_the_defaults(tmp_path: Path) -> None:
    pipeline = read(tmp_path, "train:\n")
    assert pipeline.name == "mine"
    assert pipeline.enabled == ("train", "evaluate", "visualize", "report")
    assert commands(pipeline)["train"] == ["jaxrl train ppo --workdir=p/train/run"]
    assert commands(pipeline)["evaluate"] == ["jaxrl evaluate p/train/run --episodes=100 --checkpoint=best"]


def test_other_names_of_sections_mean_the_same(tmp_path: Path) -> None:
    text = (
        "data_preparation: {enabled: true, env: 'jaxrl:Platformer'}\n"
        "hyperparameter_search: {enabled: true, space: {ppo.gamma: {uniform: [0.9, 1.0]}}}\n"
        "training: {config: ppo_mlp}\nevaluation: {episodes: 7}\nvisualization: {curves: false}\n"
        "report: {pdf: false}\ndeployment: {enabled: true}\n"
    )
    short = text
    for stage, kind in STAGES.items():
        if kind.also:
            short = short.replace(f"{kind.also}:", f"{stage}:")
    assert short != text
    assert read(tmp_path, text).sections == read(tmp_path, short).sections
    assert set(read(tmp_path, text).enabled) == set(STAGES) - {"pretrain"}


def test_flags_become_flags_and_all_else_fields(tmp_path: Path) -> None:
    text = (
        "train: {config: ppo_mlp, steps: 1e6, minutes: 2, num-envs: 8, quick: true, ppo.gamma: 0.9,\n"
        "  network: {hidden_sizes: [8, 8]}, env: 'gymnax:CartPole-v1'}\nevaluate: {sample: true, seed: 3}\n"
        "visualize: {metric: episode/return}\n"
    )
    found = commands(read(tmp_path, text))
    assert found["train"] == [
        "jaxrl train ppo_mlp --quick --config.stop.steps=1000000.0 --config.stop.seconds=120 "
        "--config.env.num_envs=8 --config.ppo.gamma=0.9 '--config.network.hidden_sizes=(8, 8)' "
        "--config.env.name=gymnax:CartPole-v1 --workdir=p/train/run"
    ]
    assert found["evaluate"][0].endswith("--checkpoint=best --sample --seed=3")
    deployed = commands(read(tmp_path, "train:\ndeploy: {enabled: true}\n"))
    assert deployed["evaluate"][0].endswith("--checkpoint=best --greedy")  # as the model acts
    picture = "--output=p/visualize/curves.png"
    assert found["visualize"] == [f"jaxrl compare p/train/run --metric=episode/return {picture}"]


def test_the_winner_is_trained_with_the_fields_of_training(tmp_path: Path) -> None:
    text = f"{SEARCHED}train: {{config: ppo_mlp, steps: 500, seed: 4}}\n"
    found = commands(read(tmp_path, text.replace("1.0]}}", "1.0]}}, steps: 100, trials: 2")))
    assert found["search"][0].startswith("jaxrl search ppo_mlp --space=p/search/space.yaml --trials=2")
    assert "--config.stop.steps=100 --config.seed=4" in found["search"][0]
    assert found["train"] == [
        "jaxrl train p/search/study/best_config.py --config.stop.steps=500 --workdir=p/train/run"
    ]


def test_what_trials_alone_have_is_as_in_the_config_again(tmp_path: Path) -> None:
    text = "1.0]}}, steps: 100, evaluate: {episodes: 3}"
    found = commands(read(tmp_path, SEARCHED.replace("1.0]}}", text) + "train: {config: ppo_mlp}\n"))
    assert "--config.stop.steps=100 --config.evaluate.episodes=3" in found["search"][0]
    config = load_config("ppo_mlp")
    restored = (
        f"--config.stop.steps={config.stop.steps} --config.evaluate.episodes={config.evaluate.episodes}"
    )
    assert restored in found["train"][0]


def test_outputs_are_inputs_by_name(tmp_path: Path) -> None:
    text = (
        "data: {enabled: true, env: 'jaxrl:Platformer'}\n"
        "train: {config: ppo_platformer, env: \"jaxrl:Platformer(levels='{data.folder}/train')\"}\n"
    )
    stages = build(read(tmp_path, text), StagePlaces("p"))
    assert "(levels='p/data/data/train')" in stages["train"].steps[0].arguments[1]
    assert stages["train"].reads == ("data",)
    assert stages["report"].reads == ("data", "train", "evaluate", "visualize")


def test_the_registry_takes_the_model_unless_a_format_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("train: {config: ppo_mlp}\ndeploy: {enabled: true, to: models, stage: staging}\n")
    (line,) = commands(definition.read(str(file), command_flags()))["deploy"]
    assert line == "jaxrl deploy p/train/run --to=models --name=mine --checkpoint=best --stage=staging"
    file.write_text("train: {config: ppo_mlp}\ndeploy: {enabled: true, format: numpy}\n")
    (line,) = commands(definition.read(str(file), command_flags()))["deploy"]
    assert line.endswith("--format=numpy --checkpoint=best --output=results/models/mine/numpy")


def test_training_starts_from_a_clone_unless_that_failed_its_check(tmp_path: Path) -> None:
    text = "data: {enabled: true, env: CartPole-v1}\npretrain: {enabled: true}\ntrain: {config: ppo_mlp}\n"
    (tmp_path / "mine.yaml").write_text(text)
    pipeline = definition.read(str(tmp_path / "mine.yaml"), command_flags())
    places = StagePlaces(str(tmp_path))
    run = tmp_path / "pretrain/run"
    (step,) = build(pipeline, places)["pretrain"].steps
    assert step.arguments == ("ppo_mlp", f"--data={tmp_path}/data/data", f"--workdir={run}")
    stage = build(pipeline, places)["train"]
    assert f"--config.init_from={run}" in stage.steps[0].arguments
    assert stage.reads == ("pretrain",)
    run.mkdir(parents=True)
    (run / "clone.json").write_text('{"passed": false}')
    (step,) = build(pipeline, places)["train"].steps
    assert step.arguments == ("ppo_mlp", f"--workdir={tmp_path}/train/run")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must hold a section for each stage"),
        ("[1, 2]", "must hold a section for each stage"),
        ("trian: {}", "`trian` is no section; did you mean `train`?"),
        ("train: {}\ntraining: {}", "`train` and `training` are the same section"),
        ("train: 3", "`train` (=3) must be a section"),
        ("train: {enabled: 1}", "`train.enabled` (=1) must be true or false"),
        ("evaluate: {episods: 3}", "did you mean `episodes`?"),
        ("evaluate: {episodes: 0}", "must be at least 1"),
        ("evaluate: {workdir: x}", "`evaluate.workdir` is chosen by the pipeline"),
        ("train: {quick: 3}", "`train.quick` (=3) must be true or false"),
        ("train: {minutes: soon}", "`train.minutes` (='soon') must be a number"),
        ("train: {enabled: false}", "`evaluate.enabled` needs `train.enabled`"),
        ("search: {enabled: true}", "`search.space` is missing"),
        (f"{SEARCHED}train: {{ppo.gamma: 0.5}}", "`train.ppo.gamma` is fixed, but `search.space` varies it"),
        ("name: ../x\ntrain: {}", "`name` (='../x') must be letters"),
        ("deploy: {enabled: true, name: a/b}", "`deploy.name` (='a/b') must be letters"),
        ("gates: [evaluate.mean]", "must be `STAGE.RESULT >= NUMBER`"),
        ("gates: [evaluate.mean >= nan]", "must be `STAGE.RESULT >= NUMBER`"),
        ("gates: ['evalute.mean >= 1']", "names no stage that is enabled; did you mean `evaluate`?"),
        ("gates: [train.x not worse than deployed]", "only evaluate.success_rate and evaluate.mean"),
        ("gates: {a: 1}", "`gates` must be a list of lines"),
        ("train: !!python/object/apply:os.system ['true']", "must be YAML"),
        ("train: &a {x: *a}", "must be YAML"),
        ("train: {config: ppo_mpl}", "`train`: `--config` (='ppo_mpl')"),
        ("train: {ppo: {gama: 1}}", "did you mean `config.ppo.gamma`?"),
    ],
)
def test_bad_input_is_one_line(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    output = tmp_path / "pipelines"
    given = (str(tmp_path / "mine.yaml"), f"--output={output}", "--dry-run")
    assert message in refused(capsys, "pipeline", *given)
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "one `FILE` is to be named"),
        (["cartpole", "--config=cartpole"], "one `FILE` is to be named"),
        (["cartpol"], "neither a file nor a shipped pipeline; did you mean `cartpole`?"),
        (["cartpole", "--only=trian"], "`--only` (='trian') is no stage that is enabled"),
        (["cartpole", "--from=report", "--until=train"], "comes after"),
        (["cartpole", "--new", "--workdir=x"], "both name a folder"),
        (["cartpole", "--output=gs://x/y"], "must be a local folder"),
    ],
)
def test_bad_flags_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, "pipeline", *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped_names("pipelines"))
def test_shipped_pipelines_are_valid(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path(shipped_file(name, "pipelines")).read_text()
    assert "Command:  jaxrl pipeline" in text
    assert "Minutes:" in text
    assert run(["jaxrl", "pipeline", name, f"--output={tmp_path}", "--dry-run"]) == 0
    assert "jaxrl train" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_suite_that_the_policy_cannot_play_is_found_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "velocities.yaml"
    file.write_text("train: {config: ppo_mlp}\nevaluate: {suites: [cartpole]}\n")
    said = refused(capsys, "pipeline", str(file), f"--output={tmp_path}/out", "--dry-run")
    assert "`evaluate.suites`: `evaluate.suite` (='cartpole'): `categories.as trained[0].env`" in said
    assert "has observations of float32[2], the policy has float32[4]" in said


def test_selection_of_stages() -> None:
    enabled = ("search", "train", "evaluate", "report")
    assert StageSelection().of(enabled) == enabled
    assert StageSelection(first="train", last="evaluate").of(enabled) == ("train", "evaluate")
    assert StageSelection(only=("report", "search")).of(enabled) == ("search", "report")


def test_the_first_difference_is_named() -> None:
    before = {"settings": {"train.steps": 1, "train.seed": 2}, "files": {"a": "x"}, "versions": {"jax": "1"}}
    assert difference(before, before) == ""
    assert difference(before, {**before, "settings": {"train.steps": 1}}) == "train.seed is not set, was 2"
    assert difference(before, {**before, "files": {"a": "y"}}) == "the file of a has changed"
    assert difference(before, {**before, "settings": {"train.steps": "", "train.seed": 2}}) == (
        "train.steps is empty, was 1"
    )
    assert difference(before, {**before, "versions": {"jax": "2"}}) == "jax 2 is installed, was 1"
    assert difference(before, {**before, "outputs": {"train.run": "z"}}) == "train.run has changed"


@pytest.mark.parametrize("data", [{}, {"state": "lost"}, {"state": "done", "inputs": 3}])
def test_a_damaged_record_is_noticed(data: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        StageRecord.of_json(data)
