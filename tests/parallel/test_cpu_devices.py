"""Virtual CPU devices are offered before a backend starts, and only where nobody asked for others."""

from __future__ import annotations

import jax
import pytest

from jaxrl.parallel import cpu_devices


def test_offering_devices_yields_to_the_users_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(jax.config, "update", lambda name, value: asked.append((name, value)))
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=3")
    cpu_devices.offer_cpu_devices(2)
    assert asked == []
    monkeypatch.delenv("XLA_FLAGS")
    cpu_devices.offer_cpu_devices(2)
    assert asked == [("jax_num_cpu_devices", 2)]


def test_offering_devices_too_late_changes_nothing() -> None:
    # Jobs are called from notebooks and tests too, where JAX runs already.
    before = jax.device_count()
    cpu_devices.offer_cpu_devices(before + 1)
    assert jax.device_count() == before
