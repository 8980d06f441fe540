"""Flags of XLA, and whose come first."""

import ctypes
import sys
from pathlib import Path

import jax
import pytest

from jaxrl.parallel import compilation, sharding


@pytest.mark.parametrize(
    ("platform", "flags", "level"),
    [
        ("cpu", "", 1),
        ("cpu", "--xla_force_host_platform_device_count=8", 1),
        ("cpu", "--xla_backend_optimization_level=0", None),
        ("gpu", "", None),
        ("tpu", "", None),
    ],
)
def test_flags_of_the_environment_come_first(
    platform: str, flags: str, level: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert compilation.flags(platform).get("xla_backend_optimization_level") == level


def test_flags_for_collectives_are_for_several_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "")
    assert compilation.flags("gpu") == compilation.flags("tpu", 8) == {}
    assert compilation.flags("gpu", 2) == {"xla_gpu_enable_latency_hiding_scheduler": True}
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_enable_latency_hiding_scheduler=false")
    assert compilation.flags("gpu", 2) == {}


def test_brief_programs_are_compiled_without_kernels_that_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "")
    assert "xla_cpu_use_fusion_emitters" not in compilation.flags("cpu")
    assert compilation.flags("cpu", brief=True)["xla_cpu_use_fusion_emitters"] is False
    assert compilation.flags("gpu", brief=True) == compilation.flags("gpu")
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=true")
    assert "xla_cpu_use_fusion_emitters" not in compilation.flags("cpu", brief=True)


def test_every_flag_has_a_source() -> None:
    flags = [flag for each in compilation.FLAGS.values() for flag in each]
    assert all(flag.source for flag in flags)
    assert len({flag.name for flag in flags}) == len(flags)


def test_options_that_xla_does_not_know_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    wanted = {"xla_no_such": 1, "xla_backend_optimization_level": 1, "xla_nor_this": True}
    (device,) = jax.devices()[:1]
    with caplog.at_level("DEBUG", logger="jaxrl"):
        assert compilation.options(device, wanted) == {"xla_backend_optimization_level": 1}
        assert sorted(record.args[1] for record in caplog.records) == ["xla_no_such", "xla_nor_this"]
        assert compilation.options(device, wanted) == {"xla_backend_optimization_level": 1}
    assert len(caplog.records) == 2  # it is not asked again


@pytest.mark.parametrize("brief", [False, True])
def test_xla_takes_the_options(brief: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "")
    options = compilation.options(jax.devices()[0], compilation.flags(jax.default_backend(), 2, brief))
    assert options["xla_backend_optimization_level"] == 1
    assert jax.jit(lambda x: x + 1, compiler_options=options)(1) == 2
    topology = sharding.Topology.of(1)
    doubled = topology.shard(lambda x: 2 * x, (sharding.REPLICATED,), sharding.REPLICATED, brief=brief)
    assert doubled(3.0) == 6


def resident() -> int:
    """Bytes of this process in memory that belong to no file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_freed_memory_is_returned() -> None:
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):
        pytest.skip("not glibc")
    library.malloc.restype = ctypes.c_void_p
    size, count = 2**16, 2**11  # smaller than what glibc maps, and returns, by itself; 128 MiB
    blocks = [ctypes.c_void_p(library.malloc(ctypes.c_size_t(size))) for _ in range(count + 1)]
    for block in blocks:
        ctypes.memset(block, 1, size)
    for block in blocks[:-1]:  # The last one keeps the end of the heap in use.
        library.free(block)
    before = resident()
    compilation.return_memory()
    after = resident()
    library.free(blocks[-1])
    assert before - after > size * count / 2


def test_nothing_happens_with_another_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    compilation.return_memory()
