"""Flags of XLA, and whose come first."""

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
    assert compilation.options(platform).get("xla_backend_optimization_level") == level


def test_flags_for_collectives_are_for_several_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "")
    assert compilation.options("gpu") == compilation.options("tpu", 8) == {}
    assert compilation.options("gpu", 2) == {"xla_gpu_enable_latency_hiding_scheduler": True}
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_enable_latency_hiding_scheduler=false")
    assert compilation.options("gpu", 2) == {}


def test_brief_programs_are_compiled_without_kernels_that_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "")
    assert "xla_cpu_use_fusion_emitters" not in compilation.options("cpu")
    assert compilation.options("cpu", brief=True)["xla_cpu_use_fusion_emitters"] is False
    assert compilation.options("gpu", brief=True) == compilation.options("gpu")
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=true")
    assert "xla_cpu_use_fusion_emitters" not in compilation.options("cpu", brief=True)


def test_every_flag_has_a_source() -> None:
    flags = [flag for each in compilation.FLAGS.values() for flag in each]
    assert all(flag.source for flag in flags)
    assert len({flag.name for flag in flags}) == len(flags)


def test_xla_takes_the_options() -> None:
    options = compilation.options(jax.default_backend())
    assert jax.jit(lambda x: x + 1, compiler_options=options)(1) == 2
    topology = sharding.Topology.of(1)
    for brief in (False, True):
        doubled = topology.shard(lambda x: 2 * x, (sharding.REPLICATED,), sharding.REPLICATED, brief=brief)
        assert doubled(3.0) == 6
