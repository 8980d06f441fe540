"""What the smoke set tries: tiny runs of what users begin with, by the commands that they type."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

_LIMIT = 300  # seconds of one command
_FEW = (
    *("env.num_envs=8", "stop.return=None", "log.writers=jsonl"),
    *("evaluate.every_steps=0", "evaluate.episodes=8", "evaluate.modes=('greedy',)", "log.layers=False"),
)
_PPO = ("ppo.rollout_length=16", "ppo.num_minibatches=2", "network.hidden_sizes=(16,)")
_LSTM = (*_PPO, "network.core_size=16", "checkpoint.every_steps=1024")
# By name: the arguments of `jaxrl train`, and its fields. PPO is in most of the other checks.
_ALGORITHMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "a2c": (("ppo_mlp",), ("algorithm=a2c", "stop.steps=512")),
    "pqn": (("pqn",), ("pqn.rollout_length=16", "pqn.num_minibatches=2", "stop.steps=512")),
    "dqn": (("dqn",), ("dqn.learning_starts=80", "stop.steps=400")),
    "r2d2": (("r2d2_memory",), ("r2d2.learning_starts=640", "r2d2.batch_size=8", "stop.steps=1280")),
    "sac": (("sac",), ("sac.learning_starts=64", "stop.steps=320")),
    "recurrent sac": (
        ("sac_memory",),
        ("sac.learning_starts=160", "sac.batch_size=8", "sac.updates_per_rollout=4", "stop.steps=640"),
    ),
    "dagger": (
        ("ppo_memory", "--env=jaxrl:memory/TMaze(length=4)"),
        (
            *("algorithm=dagger", "dagger.teacher=solver", "dagger.learning_starts=256"),
            *("dagger.batch_size=8", "dagger.updates_per_rollout=4", "stop.steps=1024"),
        ),
    ),
}


class Failed(Exception):
    """A command did not do what it should; the message is the last that it said."""


@dataclass(frozen=True)
class Stack:
    """A Python that has jaxrl, and the folder where its commands run.

    Attributes:
      title: what it is called in the names of checks.
      checkout: where Python finds jaxrl, if it is not installed.
    """

    title: str
    python: str
    folder: Path
    checkout: str = ""

    def jaxrl(self, *arguments: str) -> str:
        """What a command says; it fails unless it ends with 0."""
        return self.run("-m", "jaxrl", *arguments)

    def run(self, *arguments: str) -> str:
        """What Python says with these arguments."""
        command = " ".join(arguments).strip().partition("\n")[0]  # of a program its first line
        try:
            done = subprocess.run(
                [self.python, *arguments],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_LIMIT,
            )
        except subprocess.TimeoutExpired as error:
            said = error.output or b""
            text = said.decode(errors="replace") if isinstance(said, bytes) else said
            raise Failed(f"{text}\n{command}: ended after {_LIMIT} s") from None
        if done.returncode:
            raise Failed(f"{done.stdout}\n{command}: ended with {done.returncode}")
        return done.stdout

    def start(self, log: str, *arguments: str) -> subprocess.Popen[bytes]:
        """A command that goes on, with a file for what it says."""
        with (self.folder / log).open("wb") as output:
            return subprocess.Popen(
                [self.python, "-m", "jaxrl", *arguments],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def train(self, name: str, arguments: Sequence[str], fields: Sequence[str], says: str = "done: ") -> None:
        """A run in runs/NAME: it must end by itself, and with losses that are finite."""
        flags = [f"--config.{field}" for field in (*_FEW, *fields)]
        said = self.jaxrl("train", *arguments, *flags, f"--workdir=runs/{name}")
        _expect(says, said)
        rows = [json.loads(line) for line in self._run(name, "metrics.jsonl").read_text().splitlines()]
        losses = {key: x for row in rows for key, x in row.items() if key.startswith("loss/")}
        if not losses or not all(map(math.isfinite, losses.values())):
            raise Failed(f"{said}\nlosses of runs/{name}: {losses}")

    def steps(self, name: str) -> list[int]:
        """The steps of a run's checkpoints."""
        return sorted(int(x.name) for x in self._run(name, "checkpoints").glob("*") if x.name.isdigit())

    def _run(self, name: str, inside: str) -> Path:
        return self.folder / "runs" / name / inside

    def _environment(self) -> dict[str, str]:
        there = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return there | ({"PYTHONPATH": self.checkout} if self.checkout else {})


@dataclass(frozen=True)
class Check:
    """One line of the smoke set; `attempt` raises if it fails."""

    name: str
    attempt: Callable[[], None]


def groups(stack: Stack, other: Stack | None) -> list[list[Check]]:
    """The checks of a stack, and between it and another; those of a group run in their order."""
    alone = [[Check(f"{name} trains", partial(_train, stack, name))] for name in _ALGORITHMS]
    return [_recurrent(stack), *([_between(stack, other)] if other else []), *alone, *_others(stack)]


def _train(stack: Stack, name: str) -> None:
    arguments, fields = _ALGORITHMS[name]
    stack.train(name.replace(" ", "_"), arguments, (*fields, "log.every_steps=1"))


def _recurrent(stack: Stack) -> list[Check]:
    """The life of one run of PPO with an LSTM."""

    def kill() -> None:
        flags = [f"--config.{field}" for field in (*_FEW, *_LSTM, "stop.steps=100_000_000")]
        process = stack.start("killed.log", "train", "ppo", *flags, "--workdir=runs/lstm")
        try:
            _wait(lambda: len(stack.steps("lstm")) > 1, process, stack.folder / "killed.log")
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def resume() -> None:
        steps = f"stop.steps={stack.steps('lstm')[-1] + 1024}"
        stack.train("lstm", ["ppo"], (*_LSTM, steps), says="resumed from the checkpoint")

    def clone() -> None:
        stack.jaxrl("record", "runs/lstm", "--output=episodes", "--episodes=16")
        flags = [f"--config.{field}" for field in (*_FEW, *_LSTM)]
        said = stack.jaxrl(
            "pretrain", "ppo", "--data=episodes", "--bc-epochs=2", *flags, "--workdir=runs/clone"
        )
        _expect("accuracy", said)

    def evaluate() -> None:
        _expect("return", stack.jaxrl("evaluate", "runs/lstm", "--episodes=8"))

    def verify() -> None:
        stack.jaxrl("verify-checkpoint", "runs/lstm")

    def export(format: str) -> None:
        _expect("the same in all", stack.jaxrl("export", "runs/lstm", f"--format={format}"))

    return [
        Check("ppo with an LSTM trains, and is killed", kill),
        Check("the killed run is resumed", resume),
        Check("it is evaluated", evaluate),
        Check("its checkpoints are intact", verify),
        Check("it is exported as StableHLO, and checked", lambda: export("stablehlo")),
        Check("it is exported as ONNX, and checked", lambda: export("onnx")),
        Check("it is served: one request", lambda: _serve(stack)),
        Check("behavior_cloning learns from its episodes", clone),
    ]


def _others(stack: Stack) -> list[list[Check]]:
    small = (*_PPO, "stop.steps=512")

    def trace() -> None:
        fields = (*small, "profile.start=128", "profile.steps=128", "log.layers=True")
        stack.train("traced", ["ppo_mlp"], fields)
        _expect("update", stack.jaxrl("profile-summary", "runs/traced"))

    def population() -> None:
        stack.train("seeds", ["ppo_mlp"], (*small, "population.seeds=2"))
        if (found := len(list((stack.folder / "runs/seeds/members").glob("*/summary.json")))) != 2:
            raise Failed(f"{found} members with a summary, not 2")

    def devices() -> None:
        stack.train("devices", ["ppo_mlp"], (*small, "num_devices=2"))
        _expect("on 2 x cpu", (stack.folder / "runs/devices/train.log").read_text())

    def host(name: str) -> Callable[[], None]:
        return lambda: stack.train(name.partition(":")[0], ["ppo_mlp", f"--env={name}"], small)

    return [
        [Check("a device trace is taken and read", trace)],
        [Check("a population of two trains", population)],
        [Check("ppo trains on two devices", devices)],
        [Check("ppo trains on envpool's Hopper", host("envpool:Hopper-v4"))],
        [Check("ppo trains on Gymnasium's CartPole", host("gymnasium:CartPole-v1"))],
    ]


_JAX = "import jax; print(jax.__version__)"
_COMPARE = """
import pathlib, sys
import jax
import numpy as np
from jax import export
sys.path.insert(0, "runs/between/export/numpy")
from numpy_policy import NumpyPolicy
written = pathlib.Path("runs/between/export/stablehlo/policy.stablehlo").read_bytes()
program, arrays = export.deserialize(bytearray(written)), NumpyPolicy("runs/between/export/numpy")
obs = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)
outs = [policy(obs, arrays.initial_carry(64), np.ones(64, bool)) for policy in (program.call, arrays)]
np.testing.assert_array_equal(outs[0]["action"], outs[1]["action"])
for name in ("value", "carry"):
    leaves = [np.concatenate([np.ravel(x) for x in jax.tree.leaves(out[name])]) for out in outs]
    np.testing.assert_allclose(*leaves, rtol=1e-4, atol=1e-5)
"""


def _between(stack: Stack, other: Stack) -> list[Check]:
    """A run and an export that go from one stack to another, and back."""

    def train(here: Stack, steps: int, says: str) -> None:
        here.train("between", ["ppo"], (*_LSTM, f"stop.steps={steps}"), says)

    def exported(there: Stack, here: Stack) -> None:
        for format in ("stablehlo", "numpy"):
            there.jaxrl("export", "runs/between", f"--format={format}", "--greedy")
        here.run("-c", _COMPARE)

    def resume(here: Stack, there: Stack, steps: int) -> None:
        same = here.run("-c", _JAX) == there.run("-c", _JAX)
        train(here, steps, "resumed from the checkpoint" if same else "saved with jax")

    return [
        Check(f"{other.title} trains", lambda: train(other, 1024, "done: ")),
        Check("its export acts the same here", lambda: exported(other, stack)),
        Check("its run is resumed here", lambda: resume(stack, other, 2048)),
        Check("an export from here acts the same there", lambda: exported(stack, other)),
        Check("the run is resumed there again", lambda: resume(other, stack, 3072)),
    ]


def _serve(stack: Stack) -> None:
    log = stack.folder / "served.log"
    process = stack.start(log.name, "serve", "runs/lstm", "--port=0")
    try:
        _wait(lambda: re.search(r"http://[\w.:]+", log.read_text()) is not None, process, log)
        address = re.search(r"http://[\w.:]+", log.read_text())
        assert address is not None
        _post(f"{address[0]}/reset", {"session": "me"})
        answer = _post(f"{address[0]}/act", {"session": "me", "obs": [0.01, -0.02]})
        if answer.get("action") not in (0, 1):
            raise Failed(f"{log.read_text()}\nanswered {answer}")
        process.terminate()
        if code := process.wait(_LIMIT):
            raise Failed(f"{log.read_text()}\nended with {code} after SIGTERM")
    finally:
        process.kill()
        process.wait()


def _post(address: str, body: dict[str, object]) -> dict[str, object]:
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    # Not by a proxy that the environment names: the address is this machine's.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=_LIMIT) as response:
        answer: dict[str, object] = json.load(response)
    return answer


def _expect(words: str, said: str) -> None:
    if words not in said:
        raise Failed(f"{said}\n`{words}` is not in what it said")


def _wait(done: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Until something has happened while a process runs."""
    until = time.monotonic() + _LIMIT
    while not done():
        if process.poll() is not None:
            raise Failed(f"{log.read_text()}\nended with {process.returncode}")
        if time.monotonic() > until:
            raise Failed(f"{log.read_text()}\nnothing after {_LIMIT} s")
        time.sleep(0.1)
