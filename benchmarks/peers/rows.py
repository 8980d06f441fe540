"""A row of `all_peers.py`: a command, what it needs, and its figures with their aims."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

import outcome
from roster import PEERS, is_installed

Given = argparse.Namespace
# By figure and trainer; jaxrl is one of the trainers, and `BOUND` what limits it, if that is measured.
BOUND = "bound"
Figures = Mapping[str, Mapping[str, float]]
# The checkouts that options name, by option.
CHECKOUTS = {
    "purejaxrl": "luchris429/purejaxrl",
    "rejax": "keraJLi/rejax",
    "baselines": "MichaelTMatthews/Craftax_Baselines",
    "jaxmarl": "FLAIROx/JaxMARL",
}


@dataclasses.dataclass(frozen=True)
class Job:
    """One measurement of a row.

    Attributes:
      given: the options of `all_peers.py`.
      folder: for the output of the benchmark.
      round: its number, from 0.
      alone: if jaxrl runs without the peer.
    """

    given: Given
    folder: Path
    round: int
    alone: bool


@dataclasses.dataclass(frozen=True)
class Need:
    """Something besides jaxrl that a row needs.

    Attributes:
      name: as the versions of a result list it.
      version: of what is installed; None if it is not.
      how: to install it.
    """

    name: str
    version: Callable[[Given], str | None]
    how: str


@dataclasses.dataclass(frozen=True)
class Figure:
    """A number that a row measures.

    Attributes:
      name: among those of the row; "" if it is the only one.
      unit: of the number.
      aim: in words: what its ratio, or the number, should be.
      more: if more of it is better.
      flops: of the matrix products for one of its steps; None if they are not what limits it.
    """

    name: str
    unit: str
    aim: str
    more: bool = True
    flops: float | None = None

    def ratio(self, ours: float, other: float) -> float:
        """How many times better ours is."""
        return ours / other if self.more else other / ours


@dataclasses.dataclass(frozen=True)
class Row:
    """One command of a benchmark that exists.

    Attributes:
      name: as given to `--rows`.
      title: of its lines in the table.
      command: a script of this folder's parent, with its arguments.
      read: the figures in the folder of the job.
    """

    name: str
    title: str
    figures: tuple[Figure, ...]
    command: Callable[[Job], list[str]]
    read: Callable[[Path], Figures]
    needs: tuple[Need, ...] = ()

    def missing(self, given: Given) -> list[str]:
        """How to install what is not there."""
        return [need.how for need in self.needs if need.version(given) is None]


def packages_of(name: str) -> Need:
    """A virtual environment of `peers.py`."""

    def version(given: Given) -> str | None:
        peer = PEERS[name]
        assert peer.requirements is not None
        if not is_installed(peer, given.venvs):
            return None
        lines = [line for line in peer.requirements.read_text().splitlines() if "==" in line]
        return ", ".join(line.replace("==", " ") for line in lines)

    return Need(f"packages beside {name}", version, "python benchmarks/all_peers.py install")


def checkout(option: str) -> Need:
    def version(given: Given) -> str | None:
        path = getattr(given, option)
        return outcome.commit(path) if path else None

    repository = CHECKOUTS[option]
    how = f"git clone https://github.com/{repository} PATH, and given --{option}=PATH"
    return Need(repository, version, how)


def module(name: str) -> Need:
    """A package beside jaxrl."""

    def version(given: Given) -> str | None:
        return importlib.metadata.version(name) if importlib.util.find_spec(name) else None

    return Need(name, version, f"pip install {name}")
