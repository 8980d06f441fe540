"""The encoders before the LSTM or the heads in Stable-Baselines3, as the works describe them."""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn


class Dense(BaseFeaturesExtractor):
    """One dense layer with tanh."""

    def __init__(self, observation_space: Any, features_dim: int) -> None:
        super().__init__(observation_space, features_dim)
        self.layers = nn.Sequential(nn.Linear(observation_space.shape[0], features_dim), nn.Tanh())

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.layers(obs)


class Cnn(BaseFeaturesExtractor):
    """One 3x3 convolution of 16 channels and a dense layer, with relu; observations [B, H, W, C]."""

    def __init__(self, observation_space: Any, features_dim: int) -> None:
        super().__init__(observation_space, features_dim)
        height, width, channels = observation_space.shape
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 16, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * (height - 2) * (width - 2), features_dim),
            nn.ReLU(),
        )

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.layers(obs.permute(0, 3, 1, 2).float())
