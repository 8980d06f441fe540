"""GPUs by name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jaxrl.config.errors import ConfigError
from jaxrl.parallel import gpus, topologies
from jaxrl.parallel.gpus import Gpus
from jaxrl.parallel.tpu_slices import Slice


@pytest.mark.parametrize(
    ("platform", "capability", "runs"),
    [
        ("gpu", "8.0", True),
        ("gpu", "12.0", True),
        ("gpu", "7.5", False),
        ("gpu", "gfx942", False),
        ("gpu", None, False),
        ("cpu", None, False),
    ],
)
def test_triton_runs_on_nvidia_gpus_since_ampere(platform: str, capability: str | None, runs: bool) -> None:
    device = SimpleNamespace(platform=platform, compute_capability=capability)
    assert gpus.runs_triton(device) is runs


def test_names() -> None:
    assert topologies.parse("h200") == Gpus("h200", 1)
    assert topologies.parse(" H100:8 ") == Gpus("h100", 8)
    assert topologies.parse("v5e:4x8") == Slice("v5e", (4, 8))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (
            "h300",
            "or GPU or GPU:COUNT, such as h200 or h100:8 (a100, l4, rtx4090, h100, h200, b200, rtx5090)",
        ),
        ("h100:0", "1 to 16 GPUs"),
        ("h100:17", "1 to 16 GPUs"),
        ("h100:2x2", "must be GPU or GPU:COUNT"),
        ("h100:", "must be GPU or GPU:COUNT"),
        ("v5e", "must be GENERATION:SHAPE"),
    ],
)
def test_what_is_no_gpu(text: str, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        topologies.parse(text)
    assert rule in str(caught.value)
    assert f"`--topology` (={text!r})" in str(caught.value)


@pytest.mark.parametrize("name", ["h100", "h200", "b200", "a100"])
def test_peaks_are_what_the_matrix_units_can_do(name: str) -> None:
    # Published peaks: cores x 4 matrix units x operations per clock x 2 x the clock under such load.
    per_clock, clock = {
        "h100": (512, 1.8295201),
        "h200": (512, 1.8295201),
        "b200": (1024, 1.8353101),
        "a100": (256, 1.41),
    }[name]
    gpu = gpus.GPUS[name]
    peak = gpu.cores * 4 * per_clock * 2 * clock * 1e9
    assert gpu.bfloat16_flops == pytest.approx(peak, rel=0.01)
    assert gpu.tf32_flops == pytest.approx(peak / 2, rel=0.01)


def test_memory_is_the_share_that_jax_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
        monkeypatch.delenv(name, raising=False)
    h100 = Gpus("h100", 1)
    assert h100.memory_bytes == 0.75 * 84_942_979_072
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")
    assert h100.memory_bytes == 0.5 * 84_942_979_072
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "all")
    with pytest.raises(ConfigError, match=r"XLA_PYTHON_CLIENT_MEM_FRACTION \(='all'\) must be a number"):
        _ = h100.memory_bytes


def test_a_missing_compiler_is_one_line_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "is_installed", lambda: False)
    with pytest.raises(ConfigError, match=r"the extra cuda12: .*\[cuda12\]"):
        Gpus("h200", 1).devices()
