"""An exception in a user's code: one line with its file and line, and the traceback in the run's log."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxrl.commands import command_line
from jaxrl.commands.train import main
from jaxrl.config.errors import RunError, told
from jaxrl.envs import modules
from jaxrl.reporting.logs import log_to

RAISE = 'raise KeyError("no motor")'
PLACE = f"(robot.py, line 3: {RAISE})"
ROBOT = f"import jax\ndef step(x):\n    {RAISE}\n"


@pytest.fixture
def module(tmp_path: Path) -> Any:
    def load(text: str, folder: str = "mine") -> Any:
        path = tmp_path / folder / "robot.py"
        path.parent.mkdir(parents=True)
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("robot", path)
        assert spec is not None
        assert spec.loader is not None
        found = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
        return found

    return load


def caught(job: Callable[..., Any], *arguments: Any) -> Exception:
    with pytest.raises(Exception) as found:  # noqa: PT011
        job(*arguments)
    return found.value


def test_the_innermost_line_of_the_users_is_named(module: Any) -> None:
    robot = module(f"import json\ndef step(x):\n    {RAISE}\ndef read(x):\n    return json.loads(x)\n")
    assert modules.one_line(caught(robot.step, 0)) == f"KeyError: 'no motor' {PLACE}"
    inside_python = modules.one_line(caught(robot.read, "{"))
    assert inside_python.endswith("(robot.py, line 5: return json.loads(x))")
    # Traced by jax, whose frames lie between and, in notes, after it.
    assert modules.one_line(caught(jax.jit(jax.vmap(robot.step)), jnp.zeros(2))).endswith(PLACE)


def test_a_cause_that_is_told_already_is_not_told_twice(module: Any) -> None:
    robot = module(ROBOT)

    def check(again: bool) -> None:
        try:
            robot.step(0)
        except KeyError as error:
            raise ValueError(f"step raised {modules.one_line(error)}" if again else "refused") from error

    assert modules.one_line(caught(check, True)) == f"ValueError: step raised KeyError: 'no motor' {PLACE}"
    assert modules.one_line(caught(check, False)) == f"ValueError: refused {PLACE}"


def test_an_installed_environment_is_named_where_nothing_is_the_users(module: Any) -> None:
    robot = module(ROBOT, "lib/site-packages/robots")
    error = caught(robot.step, 0)
    assert modules.passed_users(error)  # This file called it: that is cut off.
    error.__traceback__ = error.__traceback__.tb_next  # type: ignore[union-attr]
    assert modules.one_line(error) == f"KeyError: 'no motor' {PLACE}"
    assert not modules.passed_users(error)


@pytest.mark.parametrize("between", ["", "    def step(x): raise\n"])
def test_a_traceback_of_another_process_is_read(between: str, tmp_path: Path) -> None:
    # As jax tells of a function that a compiled program called; Python adds the lines themselves.
    (tmp_path / "robot.py").write_text(ROBOT)
    frames = (f"{tmp_path}/train.py", f"{tmp_path}/site-packages/jax/callback.py", f"{tmp_path}/robot.py")
    text = "".join(f'  File "{name}", line 3, in step\n{between}' for name in frames)
    error = RuntimeError(f"INTERNAL: Traceback (most recent call last):\n{text}KeyError: 'no\nmotor'")
    assert modules.one_line(error) == f"KeyError: 'no motor' {PLACE}"


@pytest.mark.slow
def test_a_function_that_a_compiled_program_calls(module: Any) -> None:
    robot = module(ROBOT)
    call = jax.jit(lambda x: jax.pure_callback(robot.step, jax.ShapeDtypeStruct((), jnp.float32), x))
    error = caught(lambda: call(1.0).block_until_ready())
    assert modules.one_line(error) == f"KeyError: 'no motor' {PLACE}"


def test_a_command_ends_with_one_line(module: Any, capsys: pytest.CaptureFixture[str]) -> None:
    robot = module(ROBOT)
    assert command_line.exit_code(lambda: robot.step(0), debug=False) == 1
    assert capsys.readouterr().err == f"error: KeyError: 'no motor' {PLACE}\n"
    with pytest.raises(KeyError):
        command_line.exit_code(lambda: robot.step(0), debug=True)
    # A fault of this package is none of the user's, and shown whole.
    with pytest.raises(AttributeError):
        command_line.exit_code(functools.partial(modules.is_name, None), debug=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("known", [False, True])
def test_the_log_gets_the_traceback_and_that_it_failed(
    known: bool, module: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    robot = module(ROBOT)

    def work() -> None:
        with log_to(tmp_path / "train.log"):
            try:
                robot.step(0)
            except KeyError as error:
                raise (RunError("environment 3 broke") if known else error) from error

    error = caught(work)
    first, *rest = (tmp_path / "train.log").read_text().splitlines()
    assert first.endswith(f" ERROR jaxrl.reporting.logs: failed: {told(error)}")
    assert told(error) == ("environment 3 broke" if known else f"KeyError: 'no motor' {PLACE}")
    assert rest[0].startswith("Traceback")
    assert f"    {RAISE}" in rest
    assert not caplog.records  # The display shows the error at the end of the command, once.


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 2])
def test_a_loss_that_raises_ends_the_run(
    seeds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "robot_loss.py").write_text(
        "from jaxrl.algorithms import AuxiliaryLoss\n"
        "def lose(params, features, out, batch):\n"
        f"    {RAISE}\n"
        "loss = AuxiliaryLoss(lose, metrics=())\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    fields = ("stop.steps=256", "env.num_envs=4", "ppo.auxiliary_loss=robot_loss:loss")
    flags = [f"--config.{field}" for field in (*fields, f"population.seeds={seeds}")]
    code = main(["jaxrl", "ppo_mlp", "--workdir=run", *flags])
    line = f"KeyError: 'no motor' (robot_loss.py, line 3: {RAISE})"
    who = "all 2 members failed; seed_0: " if seeds > 1 else ""
    assert (code, capsys.readouterr().err) == (1, f"error: {who}{line}\n")
    log = (tmp_path / "run/train.log").read_text()
    assert f"failed: {line}" in log
    assert f"    {RAISE}" in log.splitlines()
