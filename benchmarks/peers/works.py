"""What is measured: one description of each work, from which every runner builds the same thing."""

from __future__ import annotations

import dataclasses
import math

ROLLOUT_LENGTH = 128
EPOCHS = 4
SOLVED_RETURN = 475.0
# Environment steps between the evaluations on the way to it.
EVALUATE_EVERY = 5_000


@dataclasses.dataclass(frozen=True)
class Work:
    """PPO on one environment with one network; 128 steps, 4 epochs, Adam, float32 everywhere.

    Attributes:
      name: as given to `--work`.
      env: the environment, by the name gymnax has for it.
      obs_shape, num_actions: of that environment.
      network: "mlp" (actor and critic apart), "lstm" (dense, LSTM, heads) or "cnn" (one 3x3 convolution of
        16 channels, dense, heads).
      hidden_sizes: widths of the dense layers; an LSTM is as wide as the last of them.
      activation: of the dense layers.
      num_minibatches: per epoch.
      steps: environment steps that the fast trainers are measured over.
    """

    name: str
    env: str
    obs_shape: tuple[int, ...]
    num_actions: int
    network: str
    hidden_sizes: tuple[int, ...]
    activation: str
    num_minibatches: int
    steps: int

    @property
    def forward_flops(self) -> int:
        """Multiplications and additions of the matrix products for one observation."""
        return 2 * sum(inputs * outputs * places for inputs, outputs, places in self._products())

    @property
    def flops_per_step(self) -> int:
        """Of a whole iteration: the rollout's forward pass; in each epoch one forward, a backward of two."""
        return self.forward_flops * (1 + 3 * EPOCHS)

    @property
    def num_parameters(self) -> int:
        """Weights and one bias per output; of an LSTM one bias per gate."""
        weights = sum(inputs * outputs for inputs, outputs, _ in self._products())
        return weights + sum(outputs for _, outputs, _ in self._products())

    def _products(self) -> list[tuple[int, int, int]]:
        """(inputs, outputs, places where it is applied) of every matrix product."""
        width = self.hidden_sizes[-1]
        heads = [(width, self.num_actions, 1), (width, 1, 1)]
        if self.network == "cnn":
            height, breadth, channels = self.obs_shape
            places = (height - 2) * (breadth - 2)
            return [(9 * channels, 16, places), *_dense(16 * places, self.hidden_sizes), *heads]
        trunk = _dense(math.prod(self.obs_shape), self.hidden_sizes)
        if self.network == "lstm":
            return [*trunk, (2 * width, 4 * width, 1), *heads]
        return [*trunk, *trunk, *heads]


def _dense(inputs: int, sizes: tuple[int, ...]) -> list[tuple[int, int, int]]:
    return [(a, b, 1) for a, b in zip((inputs, *sizes), sizes, strict=False)]


_CARTPOLE = ("CartPole-v1", (4,), 2)
_BREAKOUT = ("Breakout-MinAtar", (10, 10, 4), 3)
WORKS = {
    work.name: work
    for work in (
        Work("cartpole-mlp", *_CARTPOLE, "mlp", (64, 64), "tanh", 4, 2_000_000),
        Work("cartpole-lstm", *_CARTPOLE, "lstm", (128,), "tanh", 4, 400_000),
        Work("minatar-breakout-mlp", *_BREAKOUT, "mlp", (64, 64), "relu", 8, 1_000_000),
        Work("minatar-breakout-cnn", *_BREAKOUT, "cnn", (64,), "relu", 8, 200_000),
    )
}
SOLVE = "solve-cartpole"
