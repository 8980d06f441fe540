"""Environments whose best config is known: by name, then by family; for others their spaces decide."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Mapping
from typing import Any

from jaxrl.config.own_environment import without_arguments


@dataclasses.dataclass(frozen=True)
class KnownEnvironment:
    """The config to train an environment, or a family of them, with.

    Attributes:
      names: of environments without arguments, or patterns of `fnmatch`.
      config: the name of the shipped config.
      reaches: the return that was measured with it, as docs/results.md and the pages on suites have it.
      settings: fields that differ from the config's, by dotted name.
    """

    names: tuple[str, ...]
    config: str
    reaches: str = ""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _one(
    name: str, config: str, reaches: str = "", settings: Mapping[str, Any] | None = None
) -> KnownEnvironment:
    return KnownEnvironment((name,), config, reaches, settings or {})


# POPGym's tasks of cards: an answer changes its own reward and nothing that follows, hence the discount.
_CARDS = {
    "env.num_envs": 64,
    "ppo.rollout_length": 64,
    "ppo.num_minibatches": 8,
    "ppo.learning_rate": 4e-3,
    "ppo.gamma": 0.0,
    "ppo.entropy_coef": 0.0,
    "normalize.rewards": True,
}
_BANDIT = {
    "env.wrappers": ("one_hot_observation", "previous_action(reward=False)"),
    "env.num_envs": 64,
    "ppo.rollout_length": 128,
    "ppo.num_minibatches": 8,
    "ppo.learning_rate": 2e-3,
    "ppo.gamma": 0.99,
    "ppo.gae_lambda": 0.6,
    "ppo.entropy_coef": 1e-3,
    "normalize.rewards": True,
}
# Those of rl-zoo's PPO, but for the rate and the epochs: landing is many steps after what it depends on.
_LANDER = {
    "env.num_envs": 16,
    "ppo.rollout_length": 1024,
    "ppo.num_minibatches": 16,
    "ppo.num_epochs": 10,
    "ppo.sequence_length": 1,  # without memory, single steps may be shuffled
    "ppo.gamma": 0.999,
    "ppo.gae_lambda": 0.98,
    "ppo.entropy_coef": 0.01,
    "ppo.learning_rate": 1e-3,
}
_DOOR_KEY = {
    "env.wrappers": ("one_hot_observation(values=12)",),
    "env.num_envs": 256,
    "network.encoder": "mlp",
    "normalize.observations": False,
    "ppo.rollout_length": 32,
    "ppo.num_minibatches": 8,
    "ppo.learning_rate": 1e-3,
    "ppo.entropy_coef": 0.01,
    "ppo.entropy_schedule": "linear",
    "stop.steps": 4_000_000,
}
# A value that weighs more than the policy learns first to compare what is remembered with what is seen.
_MEMORY_S8 = {
    "env.wrappers": ("one_hot_observation(values=15)",),
    "network.encoder": "mlp",
    "network.core_layers": 2,
    "ppo.rollout_length": 64,
    "ppo.num_minibatches": 8,
    "ppo.learning_rate": 2e-3,
    "ppo.gamma": 0.999,
    "ppo.value_coef": 5.0,
    "ppo.entropy_coef": 0.02,
    "ppo.entropy_schedule": "linear",
    "stop.steps": 8_000_000,
}
# The small discount, lambda and batches are those of the recurrent baseline of Dedieu et al. 2025.
_CRAFTAX = {
    "env.num_envs": 48,
    "network.core": "gru",
    "network.hidden_sizes": (256,),
    "network.core_size": 256,
    "network.activation": "relu",
    "network.layer_norm": True,
    "normalize.observations": True,
    "normalize.rewards": True,
    "ppo.rollout_length": 96,
    "ppo.num_minibatches": 8,
    "ppo.learning_rate": 7e-4,
    "ppo.gamma": 0.925,
    "ppo.gae_lambda": 0.625,
    "ppo.value_coef": 1.0,
    "stop.steps": 1_000_000,
}
# The first one that has the exact name counts, then the first one whose pattern fits.
KNOWN = (
    _one("gymnax:CartPole-v1", "ppo_mlp", "493 to 500 after 1.0 M steps (10 seeds)"),
    _one("gymnax:Acrobot-v1", "ppo_mlp", "-81 to -73 after 1.0 M steps (10 seeds)"),
    _one("gymnax:MountainCar-v0", "ppo_mlp", "-109 to -98 after 1.0 M steps (10 seeds)"),
    _one("gymnax:Pendulum-v1", "ppo_continuous", "-145 to -143 after 1.0 M steps (10 seeds)"),
    _one("gymnax:MemoryChain-bsuite", "ppo_memory", "1.0 after 3.0 M steps (5 seeds)"),
    _one("gymnax:Breakout-MinAtar", "ppo_minatar", "26 to 87 after 10 M steps (3 seeds)"),
    _one("gymnax:Asterix-MinAtar", "ppo_minatar", "65 to 66 after 10 M steps (3 seeds)"),
    _one("gymnax:Freeway-MinAtar", "ppo_minatar", "67 to 68 after 10 M steps (3 seeds)"),
    _one("gymnax:SpaceInvaders-MinAtar", "ppo_minatar", "187 to 190 after 10 M steps (3 seeds)"),
    _one(
        "craftax:Craftax-Classic-Symbolic-v1",
        "ppo_memory",
        "9.1 after 1.0 M steps, sampled actions, with observation='parts' (1 seed)",
        _CRAFTAX,
    ),
    _one(
        "navix:Navix-DoorKey-8x8-v0",
        "ppo_mlp",
        "1.00 after 4.0 M steps with max_steps=640, and then 0.98 to 1.00 at 100; sampled actions (2 seeds)",
        _DOOR_KEY,
    ),
    _one(
        "xminigrid:MiniGrid-MemoryS8",
        "ppo_memory",
        "0.97 after 8.2 M steps (1 seed)",
        _MEMORY_S8,
    ),
    _one("envpool:HalfCheetah-v4", "ppo_mujoco", "1756 to 2438 after 1.0 M steps (5 seeds)"),
    _one("envpool:LunarLander-v2", "ppo_mlp", "240 to 275 after 1.0 M steps (3 seeds)", _LANDER),
    _one("envpool:Pong-v5", "ppo_atari", "-4 after 1.5 M steps (1 seed)"),
    _one("envpool:CoinrunEasy-v0", "ppo_coinrun", "7.2 after 0.6 M steps (1 seed)"),
    _one("jaxmarl:MPE_simple_spread_v3", "ippo_spread", "-56 after 2.0 M steps (3 seeds)"),
    _one(
        "jaxmarl:overcooked",
        "ippo_overcooked",
        "457 after 5.0 M steps, sampled actions, in the cramped room with shaped_reward=1.0 (1 seed)",
    ),
    _one("jaxrl:Maze", "ppo_maze", "89% successes, sampled actions (1 seed)"),
    _one("jaxrl:Navigation", "ppo_navigation", "95 to 96% successes (3 seeds)"),
    _one("jaxrl:Platformer", "ppo_platformer", "91% successes (1 seed)"),
    _one("jaxrl:ProbeMemory", "ppo_memory"),
    _one("jaxrl:memory/AutoencodeEasy", "ppo_memory", "-0.27 after 0.8 M steps (1 seed)", _CARDS),
    _one("jaxrl:memory/HigherLowerEasy", "ppo_memory", "0.52 after 1.0 M steps (3 seeds)", _CARDS),
    _one("jaxrl:memory/RepeatFirstEasy", "ppo_memory", "1.0 after 0.3 M steps (3 seeds)", _CARDS),
    _one("jaxrl:memory/RepeatPreviousEasy", "ppo_memory", "1.0 after 0.4 M steps (3 seeds)", _CARDS),
    _one("jaxrl:memory/CountRecallEasy", "ppo_memory", "0.34 after 1.0 M steps (1 seed)", _CARDS),
    _one(
        "jaxrl:memory/MultiarmedBanditEasy", "ppo_memory", "0.59 to 0.62 after 3.0 M steps (3 seeds)", _BANDIT
    ),
    _one(
        "jaxrl:memory/PositionOnlyCartPoleEasy",
        "ppo",
        "0.999 after 0.3 M steps (1 seed)",
        {"normalize.rewards": True},
    ),
    _one(
        "jaxrl:memory/NoisyPositionOnlyCartPoleEasy",
        "ppo",
        "0.84 after 2.0 M steps (1 seed)",
        {"normalize.rewards": True},
    ),
    _one("jaxrl:TicTacToe", "ppo_tictactoe", "no game of 2,000 lost to perfect play (1 seed)"),
    _one("pettingzoo:simple_spread_v3", "ippo_spread"),
    _one("pgx:connect_four", "ppo_connect_four", "96 to 98% of games won against greedy moves (3 seeds)"),
    KnownEnvironment(("envpool:LunarLander-v*", "gymnasium:LunarLander-v*"), "ppo_mlp", settings=_LANDER),
    KnownEnvironment(
        (
            "jaxrl:memory/RepeatFirst*",
            "jaxrl:memory/RepeatPrevious*",
            "jaxrl:memory/Autoencode*",
            "jaxrl:memory/CountRecall*",
            "jaxrl:memory/HigherLower*",
        ),
        "ppo_memory",
        settings=_CARDS,
    ),
    KnownEnvironment(
        (
            "jaxrl:memory/PositionOnlyCartPole*",
            "jaxrl:memory/NoisyPositionOnlyCartPole*",
            "jaxrl:memory/VelocityOnlyCartPole*",
        ),
        "ppo",
        settings={"normalize.rewards": True},
    ),
    KnownEnvironment(("jaxrl:memory/MultiarmedBandit*",), "ppo_memory", settings=_BANDIT),
    KnownEnvironment(("jaxrl:memory/*",), "ppo_memory"),
)


def known_environment(name: str) -> KnownEnvironment | None:
    """The entry of an environment, whatever its arguments; None for one that no entry names.

    An entry for the environment itself goes before one for its family.
    """
    own = without_arguments(name)
    exact = (known for known in KNOWN if own in known.names)
    family = (known for known in KNOWN if any(fnmatch.fnmatchcase(own, pattern) for pattern in known.names))
    return next(exact, None) or next(family, None)
