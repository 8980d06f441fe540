"""The networks of the host works in PyTorch, for the loop in CleanRL's style and for Stable-Baselines3."""

from __future__ import annotations

import torch
from torch import nn


def trunk(network: str, shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """Convolutions and the dense layer behind them, and how many features come out."""
    channels = shape[0]
    convolutions = _nature(channels) if network == "nature" else _impala(channels)
    with torch.no_grad():
        size = convolutions(torch.zeros(1, *shape)).numel()
    width = 512 if network == "nature" else 256
    return nn.Sequential(_Scale(), convolutions, nn.Linear(size, width), nn.ReLU()), width


class _Scale(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.float() / 255.0


def _nature(channels: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten()),
    )


def _impala(channels: int) -> nn.Module:
    layers: list[nn.Module] = []
    for features in (16, 32, 32):
        layers += [nn.Conv2d(channels, features, 3, padding=1), nn.MaxPool2d(3, 2, 1)]
        layers += [_Residual(features), _Residual(features)]
        channels = features
    return nn.Sequential(*layers, nn.ReLU(), nn.Flatten())


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            *(nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1)),
            *(nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)
