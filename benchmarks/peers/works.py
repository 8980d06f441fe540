"""The works that are measured: one description of each, from which every runner builds the same thing."""

from __future__ import annotations

import dataclasses
import math

SOLVED_RETURN = 475.0
# Environment steps between the evaluations on the way to it.
EVALUATE_EVERY = 5_000


@dataclasses.dataclass(frozen=True)
class Work:
    """PPO or PQN on one environment with one network; Adam, for PQN also RAdam; float32 everywhere.

    Attributes:
      name: as given to `--work`.
      env: the environment, by the name gymnax has for it; of another suite, by jaxrl's name.
      obs_shape, num_actions: of that environment.
      network: "mlp" (actor and critic apart), "lstm" (dense, LSTM, heads) or "cnn" (one 3x3 convolution of
        16 channels, dense, heads), or "core:NAME", a core by jaxrl's name (dense, core, head; actor and
        critic apart). PQN has one network, with layer normalisation before activations.
      hidden_sizes: widths of the dense layers; a core is as wide as the last of them.
      activation: of the dense layers.
      num_minibatches: per epoch.
      steps: environment steps that the fast trainers are measured over.
      algorithm: "ppo" or "pqn".
      rollout_length, epochs: of an iteration.
      rows: observations of a step, one for each agent.
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
    algorithm: str = "ppo"
    rollout_length: int = 128
    epochs: int = 4
    rows: int = 1

    @property
    def core(self) -> str:
        """Of the network, by jaxrl's name."""
        if self.network.startswith("core:"):
            return self.network.removeprefix("core:")
        return "lstm" if self.network == "lstm" else "none"

    @property
    def has_floor(self) -> bool:
        """If the sizes of its matrix products are known here, and an observation is a step."""
        return not self.network.startswith("core:") and ":" not in self.env

    @property
    def forward_flops(self) -> int:
        """Multiplications and additions of the matrix products for one observation."""
        return 2 * sum(inputs * outputs * places for inputs, outputs, places in self._products())

    @property
    def flops_per_step(self) -> int:
        """Of a whole iteration: the rollout's forward pass; in each epoch one forward, a backward of two."""
        return self.rows * self.forward_flops * (1 + 3 * self.epochs)

    @property
    def num_parameters(self) -> int:
        """Weights and one bias per output; of an LSTM one bias per gate; of normalised layers two more."""
        weights = sum(inputs * outputs for inputs, outputs, _ in self._products())
        normalized = self._products()[:-1] if self.algorithm == "pqn" else []
        scales = sum(2 * outputs for _, outputs, _ in normalized)
        return weights + sum(outputs for _, outputs, _ in self._products()) + scales

    def _products(self) -> list[tuple[int, int, int]]:
        """(inputs, outputs, places where it is applied) of every matrix product."""
        width = self.hidden_sizes[-1]
        q_values = self.algorithm == "pqn"
        heads = [(width, self.num_actions, 1), *([] if q_values else [(width, 1, 1)])]
        if self.network == "cnn":
            height, breadth, channels = self.obs_shape
            places = (height - 2) * (breadth - 2)
            return [(9 * channels, 16, places), *_dense(16 * places, self.hidden_sizes), *heads]
        trunk = _dense(math.prod(self.obs_shape), self.hidden_sizes)
        if self.network == "lstm":
            return [*trunk, (2 * width, 4 * width, 1), *heads]
        return [*trunk, *([] if q_values else trunk), *heads]


def _dense(inputs: int, sizes: tuple[int, ...]) -> list[tuple[int, int, int]]:
    return [(a, b, 1) for a, b in zip((inputs, *sizes), sizes, strict=False)]


_CARTPOLE = ("CartPole-v1", (4,), 2)
# What both jaxrl and memorax have.
CORES = "lstm gru mingru lru s5 ffm slstm mlstm mamba2 linear_attention gtrxl".split()
# Its two cooks are rows of the batch; a step of the kitchen is one step.
_OVERCOOKED = ("jaxmarl:overcooked(layout='cramped_room', shaped_reward=1.0)", (520,), 6)
_BREAKOUT = ("Breakout-MinAtar", (10, 10, 4), 3)
WORKS = {
    work.name: work
    for work in (
        Work("cartpole-mlp", *_CARTPOLE, "mlp", (64, 64), "tanh", 4, 2_000_000),
        Work("cartpole-lstm", *_CARTPOLE, "lstm", (128,), "tanh", 4, 400_000),
        *(Work(f"cartpole-{x}-apart", *_CARTPOLE, f"core:{x}", (128,), "tanh", 4, 200_000) for x in CORES),
        Work("minatar-breakout-mlp", *_BREAKOUT, "mlp", (64, 64), "relu", 8, 1_000_000),
        Work("minatar-breakout-cnn", *_BREAKOUT, "cnn", (64,), "relu", 8, 200_000),
        Work("overcooked-mlp", *_OVERCOOKED, "mlp", (64, 64), "tanh", 4, 200_000, rows=2),
        # Network and counts of purejaxql's pqn_cartpole.yaml and pqn_minatar.yaml.
        Work("pqn-cartpole-mlp", *_CARTPOLE, "mlp", (256, 256), "relu", 16, 500_000, "pqn", 64, 4),
        Work("pqn-breakout-cnn", *_BREAKOUT, "cnn", (128,), "relu", 32, 200_000, "pqn", 32, 2),
    )
}
SOLVE = "solve-cartpole"
