"""NVIDIA GPUs by name, such as `h200` or `h100:8`: their data, and descriptions to compile for."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from jaxrl.config import installation
from jaxrl.config.errors import ConfigError

_KIB = 2**10
# In one host: a description says nothing of the network between hosts.
MOST_GPUS = 16
# JAX takes this share of a GPU's memory at its start (docs.jax.dev, "GPU memory allocation").
_DEFAULT_SHARE = 0.75
_SHARE_VARIABLES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
_PLUGINS = {"jax_cuda12_plugin": "jax-cuda12-plugin", "jax_cuda13_plugin": "jax-cuda13-plugin"}


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU.

    Attributes:
      description: as the driver names it.
      capability: CUDA compute capability.
      cores: streaming multiprocessors.
      fpus_per_core: float32 units of each.
      threads_per_core: the most that are resident.
      shared_memory_per_core: bytes.
      shared_memory_per_block: bytes that a kernel may request.
      l2_cache: bytes.
      clock_ghz: at boost.
      bandwidth: bytes of memory per second.
      tf32_flops: peak of matrix operations on float32 operands rounded to TF32, accumulated in float32, per
        second, without sparsity.
      bfloat16_flops: the same on bfloat16 operands.
    """

    description: str
    capability: tuple[int, int]
    cores: int
    fpus_per_core: int
    threads_per_core: int
    shared_memory_per_core: int
    shared_memory_per_block: int
    l2_cache: int
    clock_ghz: float
    memory_bytes: int
    bandwidth: float
    tf32_flops: float
    bfloat16_flops: float


# Kernels need tensor cores for TF32 and bfloat16 and 99 KiB of shared memory: Ampere's.
_TRITON_SINCE = (8, 0)


def runs_triton(device: Any) -> bool:
    """True if Triton kernels run on a device of JAX: NVIDIA GPUs since Ampere."""
    # AMD's GPUs have names instead, such as gfx942, and other devices have nothing.
    found = re.fullmatch(r"(\d+)\.(\d+)", str(getattr(device, "compute_capability", "")))
    return device.platform == "gpu" and found is not None and (int(found[1]), int(found[2])) >= _TRITON_SINCE


# h100 (SXM), h200, a100 (SXM, 80 GB) and b200 are XLA's own descriptions: openxla/xla,
# xla/backends/gpu/target_config/specs/{h100_sxm,h200,a100_sxm_80,b200}.txtpb. The others: cores, clock, L2,
# memory and bandwidth from NVIDIA's data sheet of the L4 and its white papers on Ada and Blackwell GeForce
# GPUs; threads and shared memory from the CUDA C++ Programming Guide, table of compute capabilities. Peaks
# are NVIDIA's without sparsity, and with float32 accumulation on GeForce.
GPUS = {
    "a100": Gpu(
        "NVIDIA A100-SXM4-80GB", (8, 0), cores=108, fpus_per_core=64, threads_per_core=2048, clock_ghz=1.41,
        shared_memory_per_core=164 * _KIB, shared_memory_per_block=163 * _KIB, l2_cache=41_943_040,
        memory_bytes=85_100_068_864, bandwidth=2.03904e12, tf32_flops=156e12, bfloat16_flops=312e12,
    ),
    "l4": Gpu(
        "NVIDIA L4", (8, 9), cores=58, fpus_per_core=128, threads_per_core=1536, clock_ghz=2.04,
        shared_memory_per_core=100 * _KIB, shared_memory_per_block=99 * _KIB, l2_cache=50_331_648,
        memory_bytes=23_034 * 2**20, bandwidth=0.3e12, tf32_flops=60e12, bfloat16_flops=121e12,
    ),
    "rtx4090": Gpu(
        "NVIDIA GeForce RTX 4090", (8, 9), cores=128, fpus_per_core=128, threads_per_core=1536,
        shared_memory_per_core=100 * _KIB, shared_memory_per_block=99 * _KIB, l2_cache=75_497_472,
        clock_ghz=2.52, memory_bytes=24_564 * 2**20, bandwidth=1.008e12,
        tf32_flops=82.6e12, bfloat16_flops=165.2e12,
    ),
    "h100": Gpu(
        "NVIDIA H100 80GB HBM3", (9, 0), cores=132, fpus_per_core=128, threads_per_core=2048, clock_ghz=1.98,
        shared_memory_per_core=228 * _KIB, shared_memory_per_block=227 * _KIB, l2_cache=52_428_800,
        memory_bytes=84_942_979_072, bandwidth=3.35232e12, tf32_flops=494.7e12, bfloat16_flops=989.4e12,
    ),
    "h200": Gpu(
        "NVIDIA H200", (9, 0), cores=132, fpus_per_core=128, threads_per_core=2048, clock_ghz=1.98,
        shared_memory_per_core=228 * _KIB, shared_memory_per_block=227 * _KIB, l2_cache=52_428_800,
        memory_bytes=150_754_820_096, bandwidth=4.8e12, tf32_flops=494.7e12, bfloat16_flops=989.4e12,
    ),
    "b200": Gpu(
        "NVIDIA B200", (10, 0), cores=148, fpus_per_core=128, threads_per_core=2048, clock_ghz=1.965,
        shared_memory_per_core=228 * _KIB, shared_memory_per_block=227 * _KIB, l2_cache=132_644_864,
        memory_bytes=191_514_411_008, bandwidth=7.67232e12, tf32_flops=1_112e12, bfloat16_flops=2_225e12,
    ),
    "rtx5090": Gpu(
        "NVIDIA GeForce RTX 5090", (12, 0), cores=170, fpus_per_core=128, threads_per_core=1536,
        shared_memory_per_core=100 * _KIB, shared_memory_per_block=99 * _KIB, l2_cache=100_663_296,
        clock_ghz=2.407, memory_bytes=32_607 * 2**20, bandwidth=1.792e12,
        tf32_flops=104.8e12, bfloat16_flops=209.5e12,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Gpus:
    """Several GPUs of one kind in one host; `name` is a key of `GPUS`."""

    name: str
    count: int

    enforces_memory: ClassVar[bool] = False

    @property
    def gpu(self) -> Gpu:
        return GPUS[self.name]

    @property
    def memory_bytes(self) -> int:
        return int(memory_share() * self.gpu.memory_bytes)

    @property
    def compiler(self) -> str:
        plugin = next(name for name in _PLUGINS if importlib.util.find_spec(name))
        return f"{_PLUGINS[plugin]} {importlib.metadata.version(_PLUGINS[plugin])}"

    def devices(self) -> list[Any]:
        if not is_installed():
            raise ConfigError(
                f"`--topology` (={self.name!r}) needs XLA's compiler for CUDA, the extra cuda12: "
                f"{installation.command('cuda12')}"
            )
        from jax.experimental import topologies

        # XLA logs its search for a schedule that takes less memory, which is not for users. 1 is the value
        # that JAX sets by default.
        if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1":
            os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        # Partitions x hosts x GPUs of a host.
        shape = f"1x1x{self.count}"
        described = topologies.get_topology_desc(
            f"{self.name}:{self.count}", "cuda", target_config=target_config(self.gpu), topology=shape
        )
        return list(described.devices)


def is_installed() -> bool:
    """True if this installation can compile programs for GPUs."""
    return any(importlib.util.find_spec(name) for name in _PLUGINS)


def parse(text: str) -> Gpus:
    """Parses `h200` or `h100:8`; ConfigError if there is no such GPU, or not so many of them in a host."""
    matched = re.fullmatch(r"(\w+)(?::(\d{1,9}))?", text.strip().lower())
    if matched is None or matched[1] not in GPUS:
        raise ConfigError(
            f"`--topology` (={text!r}) must be GPU or GPU:COUNT, such as h200 or h100:8; "
            f"GPUs: {', '.join(GPUS)}"
        )
    count = int(matched[2] or 1)
    if not 1 <= count <= MOST_GPUS:
        raise ConfigError(f"`--topology` (={text!r}) must have 1 to {MOST_GPUS} GPUs: one host is described")
    return Gpus(matched[1], count)


def memory_share() -> float:
    """The share of a GPU's memory that JAX takes, from its environment variables.

    Raises:
      ConfigError: the variable does not hold a share.
    """
    name = next((name for name in _SHARE_VARIABLES if os.environ.get(name)), None)
    if name is None:
        return _DEFAULT_SHARE
    try:
        share = float(os.environ[name])
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ConfigError(f"{name} (={os.environ[name]!r}) must be a number above 0 and at most 1")
    return share


def target_config(gpu: Gpu) -> str:
    """XLA's description of a GPU, a `GpuTargetConfigProto` as text."""
    major, minor = gpu.capability
    facts = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 48 * _KIB,
        "shared_memory_per_core": gpu.shared_memory_per_core,
        "threads_per_core_limit": gpu.threads_per_core,
        "core_count": gpu.cores,
        "fpus_per_core": gpu.fpus_per_core,
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 65535,
        "block_dim_limit_z": 65535,
        "memory_bandwidth": int(gpu.bandwidth),
        "l2_cache_size": gpu.l2_cache,
        "clock_rate_ghz": gpu.clock_ghz,
        "device_memory_size": gpu.memory_bytes,
        "shared_memory_per_block_optin": gpu.shared_memory_per_block,
        "cuda_compute_capability": f"{{ major: {major} minor: {minor} }}",
        "registers_per_core_limit": 65536,
        "registers_per_block_limit": 65536,
    }
    lines = " ".join(f"{name}{'' if isinstance(x, str) else ':'} {x}" for name, x in facts.items())
    return (
        f'gpu_device_info {{ {lines} }} platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 8 }} '
        f'runtime_version {{ major: 12 minor: 8 }} device_description_str: "{gpu.description}"'
    )
