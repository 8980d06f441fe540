"""The cases that benchmarks/accelerator.py measures, in the order of importance. Standard library only."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

ROLLOUT_LENGTH = 128
EPOCHS = 4
BASE = 4096  # environments
# Iterations that peers, which know no seconds, are measured over.
PEER_ITERATIONS = 20

# JAX's precision of float32 products; with bfloat16 the network itself computes in that type.
PRECISIONS = {"float32": "float32", "tf32": "tensorfloat32", "bfloat16": "default"}
# XLA's flag `xla_gpu_enable_command_buffer`: which operations it may launch together, as one CUDA graph.
# Loops and conditionals are not among its defaults. None leaves those.
COMMAND_BUFFERS = {
    "default": None,
    "none": "",
    "loops": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,COLLECTIVES,CONDITIONAL,WHILE,DYNAMIC_SLICE_FUSION",
}
CORES = ("lstm-scan", "lstm-kernel", "gru", "mingru", "lru", "s5", "gated_delta", "gtrxl")
CORES += ("linear_attention", "mamba2", "mlstm", "ffm", "slstm")


@dataclasses.dataclass(frozen=True)
class Case:
    """One measurement, in a process of its own.

    Attributes:
      env: cartpole or breakout.
      network: mlp (actor and critic apart), cnn, one of `CORES`, or `check`: kernel and scan of an LSTM
        compared on the device, nothing timed.
      num_envs: of all devices.
      precision: a key of `PRECISIONS`.
      command_buffers: a key of `COMMAND_BUFFERS`.
      trainer: jaxrl, purejaxrl or rejax.
      phases: whether the rollout is timed alone, which takes a program of its own.
    """

    env: str
    network: str
    num_envs: int = BASE
    precision: str = "tf32"
    command_buffers: str = "default"
    trainer: str = "jaxrl"
    phases: bool = False

    @property
    def name(self) -> str:
        """Of the row, and for `--only`."""
        parts = [self.env, self.network, str(self.num_envs), self.precision]
        parts += [f"buffers-{self.command_buffers}"] if self.command_buffers != "default" else []
        return "-".join([*parts, *([self.trainer] if self.trainer != "jaxrl" else [])])

    @property
    def network_fields(self) -> dict[str, Any]:
        """Of a config's section `network`."""
        fields: dict[str, Any] = {
            "compute_dtype": "bfloat16" if self.precision == "bfloat16" else "float32",
            "encoder": "minatar" if self.network == "cnn" else "mlp",
            "core": self.network.partition("-")[0] if self.network in CORES else "none",
            "separate_value": self.network == "mlp",
            "hidden_sizes": {"mlp": (64, 64), "cnn": (64,)}.get(self.network, (128,)),
        }
        if self.network.startswith("lstm"):
            fields["recurrence"] = "pallas" if self.network == "lstm-kernel" else "scan"
        return fields

    @property
    def minibatches(self) -> int:
        return 8 if self.env == "breakout" else 4


def cases(platform: str, peers: tuple[str, ...]) -> Iterator[Case]:
    """Those of a platform, such as "gpu", the most telling first."""
    yield Case("cartpole", "check")
    yield Case("cartpole", "check", precision="bfloat16")
    for network in ("mlp", "lstm-kernel", "lstm-scan"):
        yield Case("cartpole", network, phases=True)
    for trainer in peers:
        yield Case("cartpole", "mlp", trainer=trainer)
        if trainer == "purejaxrl":
            yield Case("cartpole", "lstm-scan", trainer=trainer)
    for network in ("cnn", "mlp"):
        yield Case("breakout", network, phases=True)
    if platform == "gpu":
        for network in ("mlp", "lstm-scan", "lstm-kernel"):
            for buffers in ("none", "loops"):
                yield Case("cartpole", network, command_buffers=buffers)
    for num_envs in (16_384, 131_072, 1024):
        for network in ("mlp", "lstm-kernel", "lstm-scan"):
            yield Case("cartpole", network, num_envs)
    for network in ("mlp", "lstm-kernel", "lstm-scan"):
        yield Case("cartpole", network, precision="bfloat16")
    for network in CORES[2:]:
        yield Case("cartpole", network)
    for num_envs in (1024, 16_384, 65_536):
        yield Case("breakout", "cnn", num_envs)
    yield Case("breakout", "cnn", precision="bfloat16")
    for trainer in peers:
        yield Case("breakout", "mlp", trainer=trainer)
    for network in ("mlp", "lstm-scan", "lstm-kernel"):
        yield Case("cartpole", network, precision="float32")
    yield Case("breakout", "lstm-kernel")


def tiny_cases(peers: tuple[str, ...]) -> Iterator[Case]:
    """One of each kind with 8 environments, for a dry run."""
    yield Case("cartpole", "check", 8)
    yield Case("cartpole", "mlp", 8, phases=True)
    yield Case("breakout", "cnn", 8, precision="bfloat16")
    yield Case("cartpole", "lstm-scan", 8, command_buffers="none")
    for core in CORES[1:]:
        yield Case("cartpole", core, 8)
    for trainer in peers:
        yield Case("cartpole", "mlp", 8, trainer=trainer)
