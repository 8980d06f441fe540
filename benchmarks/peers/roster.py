"""The trainers that take part in each work, their surroundings and their virtual environments."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from works import CORES

HERE = Path(__file__).parent
_APART = "actor and critic apart"
_TWO_ADAMS = f"{_APART}, each with its Adam"
_REJAX = f"{_TWO_ADAMS}; clips each gradient entry, not the norm"


@dataclasses.dataclass(frozen=True)
class Peer:
    """One trainer.

    Attributes:
      name: as given to `--peers`, and the name of its virtual environment.
      runner: the script that runs it, in this folder.
      notes: what its network and updates are, by work; a work that is missing is one it does not do.
      solve: the settings with which it is to solve CartPole; "" if it does not.
      share: of a work's steps it is measured over this part; slow trainers need fewer.
      checkout: whether it must be given as a path, being on no package index.
      trains_populations: whether one program of its can train several seeds.
    """

    name: str
    runner: str
    notes: Mapping[str, str]
    solve: str
    share: float = 1.0
    checkout: bool = False
    trains_populations: bool = False

    @property
    def requirements(self) -> Path | None:
        """Its pinned packages; None where it runs on the Python of this process."""
        return None if self.name == "jaxrl" else HERE / "requirements" / f"{self.name}.txt"


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "jaxrl",
            "jaxrl_runner.py",
            {
                "cartpole-mlp": _APART,
                "cartpole-lstm": "dense 128, LSTM 128, heads",
                "minatar-breakout-mlp": _APART,
                "minatar-breakout-cnn": "conv 16, dense 64, heads",
                **{f"cartpole-{core}-apart": f"dense 128, {core} 128, head; {_APART}" for core in CORES},
                "overcooked-mlp": _APART,
                "pqn-cartpole-mlp": "dense 256, 256; Adam",
                "pqn-breakout-cnn": "conv 16, dense 128; Adam",
            },
            "configs/ppo_mlp.py: 32 environments, 16 steps, 4 epochs, 4 minibatches",
            trains_populations=True,
        ),
        Peer(
            "rejax",
            "rejax_runner.py",
            {"cartpole-mlp": _REJAX, "minatar-breakout-mlp": _REJAX},
            "its configs/gymnax/cartpole.yaml: 5 environments, 100 steps, 5 epochs, 5 minibatches",
            trains_populations=True,
        ),
        Peer(
            "purejaxrl",
            "purejaxrl_runner.py",
            {
                "cartpole-mlp": _APART,
                "cartpole-lstm": "dense 128, GRU 128, dense 128 before each head: the same FLOPs as the LSTM",
                "minatar-breakout-mlp": _APART,
                "minatar-breakout-cnn": "conv 16, dense 64, heads: a network of ours in its ppo.py",
            },
            "its ppo.py: 4 environments, 128 steps, 4 epochs, 4 minibatches, always 500,000 steps",
            checkout=True,
            trains_populations=True,
        ),
        Peer(
            "memorax",
            "memorax_runner.py",
            {f"cartpole-{core}-apart": f"dense 128, its {core} 128, head; {_TWO_ADAMS}" for core in CORES},
            "",
            share=0.25,
        ),
        Peer(
            "purejaxql",
            "purejaxql_runner.py",
            {
                "pqn-cartpole-mlp": "dense 256, 256; RAdam; a batch normalisation that is not used",
                "pqn-breakout-cnn": "conv 16, dense 128; RAdam; a batch normalisation that is not used",
            },
            "",
            checkout=True,
        ),
        Peer("jaxmarl", "jaxmarl_runner.py", {"overcooked-mlp": _APART}, "", checkout=True),
        Peer(
            "sb3",
            "sb3_runner.py",
            {
                "cartpole-mlp": _APART,
                "cartpole-lstm": "RecurrentPPO: dense 128, LSTM 128, heads",
                "minatar-breakout-mlp": f"{_APART}; the game of the minatar package",
                "minatar-breakout-cnn": "conv 16, dense 64, heads; the game of the minatar package",
            },
            "rl-baselines3-zoo: 8 environments, 32 steps, 20 epochs, 1 minibatch",
            share=0.05,
        ),
        Peer(
            "sbx",
            "sb3_runner.py",
            {"cartpole-mlp": _TWO_ADAMS},
            "rl-baselines3-zoo: 8 environments, 32 steps, 20 epochs, 1 minibatch",
            share=0.05,
        ),
    )
}


def is_installed(peer: Peer, venvs: Path) -> bool:
    """If its virtual environment is there, with the packages that are pinned today."""
    stamp = _stamp(peer, venvs)
    return peer.requirements is None or (
        stamp.exists() and stamp.read_text() == peer.requirements.read_text()
    )


def _stamp(peer: Peer, venvs: Path) -> Path:
    """Written last: an environment without it is half made."""
    return venvs / peer.name / "requirements.txt"


def interpreter(peer: Peer, venvs: Path) -> Path:
    """The Python of its virtual environment, whether that is there or not."""
    return venvs / peer.name / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def python_of(peer: Peer, venvs: Path) -> Path:
    """The Python that runs `peer`; makes its virtual environment where that is missing or out of date.

    Raises:
      SystemExit: making it failed; with what pip said.
    """
    if peer.requirements is None:
        return Path(sys.executable)
    folder, python = venvs / peer.name, interpreter(peer, venvs)
    if not is_installed(peer, venvs):
        print(f"{peer.name}: making {folder}", flush=True)
        venv = [sys.executable, "-m", "venv", "--clear", str(folder)]
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for command in (venv, [*pip, "--requirement", str(peer.requirements)]):
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode:
                sys.exit(f"{done.stdout}\nerror: {peer.name}: its virtual environment could not be made")
        _stamp(peer, venvs).write_text(peer.requirements.read_text())
    return python
