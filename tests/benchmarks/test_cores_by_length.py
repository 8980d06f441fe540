"""`benchmarks/cores_by_length.py` runs all cores of the package, and refuses GPUs that it does not know."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from jaxrl.networks.cores import CORES
from tests.benchmarks.loading import load


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    return load("cores_by_length")


def test_every_core_of_the_package_is_timed(benchmark: ModuleType) -> None:
    assert {*benchmark.CORES, "none"} == {*CORES.names()}


@pytest.mark.slow
@pytest.mark.parametrize("length", ["step", 4])
def test_a_core_runs_by_steps_and_over_a_sequence(benchmark: ModuleType, length: int | str) -> None:
    rate, needed = benchmark.measure("mingru", length, 2, 0.0)
    assert rate > 0
    assert needed >= 0


def test_an_unknown_gpu_is_refused(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cores_by_length.py", "--topology=h900"])
    with pytest.raises(SystemExit):
        benchmark.main()
    assert "(='h900') must be GPU or GPU:COUNT" in capsys.readouterr().err.splitlines()[-1]
