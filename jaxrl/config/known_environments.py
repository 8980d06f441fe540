"""Environments whose best config is known: by name, then by family; for others their spaces decide."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Mapping
from typing import Any

from jaxrl.config import known_settings
from jaxrl.config.known_returns import MeasuredReturn, PublishedReturn
from jaxrl.config.own_environment import without_arguments


@dataclasses.dataclass(frozen=True)
class KnownEnvironment:
    """The config to train an environment, or a family of them, with.

    Attributes:
      names: of environments without arguments, or patterns of `fnmatch`.
      config: the name of the shipped config.
      settings: fields that differ from the config's, by dotted name.
      measured: what this reaches; None for a family and where it was not measured.
      published: what others report, best first.
    """

    names: tuple[str, ...]
    config: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    measured: MeasuredReturn | None = None
    published: tuple[PublishedReturn, ...] = ()


def _one(
    name: str,
    config: str,
    measured: MeasuredReturn | None = None,
    settings: Mapping[str, Any] | None = None,
    *published: PublishedReturn,
) -> KnownEnvironment:
    return KnownEnvironment((name,), config, settings or {}, measured, published)


def _blines(score: str) -> PublishedReturn:
    return PublishedReturn(score, None, "gymnax-blines' PPO, README")


def _zoo(score: str, steps: float = 1.0) -> PublishedReturn:
    return PublishedReturn(score, steps, "rl-zoo's PPO, benchmark.md at 0088472")


def _cleanrl(score: str) -> PublishedReturn:
    return PublishedReturn(score, 1.0, "CleanRL's PPO, docs/benchmark/ppo_continuous_action.md at 09f7a7f")


def _popgym(score: str) -> PublishedReturn:
    return PublishedReturn(score, 15.0, "POPGym's GRU, Morad et al. 2023, table 3, at second hand")


# The first one that has the exact name counts, then the first one whose pattern fits.
KNOWN = (
    _one(
        "gymnax:CartPole-v1",
        "ppo_mlp",
        MeasuredReturn("493 to 500", 1.0, 10, seconds="9"),
        None,
        _zoo("500", 0.1),
    ),
    _one(
        "gymnax:Acrobot-v1",
        "ppo_mlp",
        MeasuredReturn("-81 to -73", 1.0, 10, seconds="10-11"),
        None,
        _zoo("-73.5 ± 18.2"),
        _blines("-80"),
    ),
    _one(
        "gymnax:MountainCar-v0",
        "ppo_mlp",
        MeasuredReturn("-109 to -98", 1.0, 10, seconds="9-10"),
        None,
        _zoo("-110.4 ± 19.5"),
        _blines("-118"),
    ),
    _one(
        "gymnax:Pendulum-v1",
        "ppo_continuous",
        MeasuredReturn("-145 to -143", 1.0, 10, seconds="10-15"),
        None,
        _blines("-130"),
        _zoo("-172 ± 104", 0.1),
    ),
    _one(
        "gymnax:MemoryChain-bsuite",
        "ppo_memory",
        MeasuredReturn("1.0", 3.0, 5, "on one device 4 of 5 seeds", "32-37"),
    ),
    _one(
        "gymnax:Breakout-MinAtar",
        "ppo_minatar",
        MeasuredReturn("24 to 92", 3.0, 5, "median 62", "74-85"),
        None,
        _blines("28"),
    ),
    _one(
        "gymnax:Asterix-MinAtar",
        "ppo_minatar",
        MeasuredReturn("65 to 66", 10.0, 3),
        known_settings.MINATAR,
        _blines("15"),
    ),
    _one(
        "gymnax:Freeway-MinAtar",
        "ppo_minatar",
        MeasuredReturn("67 to 68", 10.0, 3),
        known_settings.MINATAR,
        _blines("58"),
    ),
    _one(
        "gymnax:SpaceInvaders-MinAtar",
        "ppo_minatar",
        MeasuredReturn("187 to 190", 10.0, 3),
        known_settings.MINATAR,
        _blines("131"),
    ),
    _one(
        "craftax:Craftax-Classic-Symbolic-v1",
        "ppo_memory",
        MeasuredReturn("10.1 to 11.3", 1.0, 4, "sampled actions", "407-824", "(observation='parts')"),
        known_settings.CRAFTAX,
        PublishedReturn("10.3", 1.0, "recurrent PPO of Dedieu et al. 2025, from pictures, at second hand"),
    ),
    _one(
        "craftax:Craftax-Symbolic-v1",
        "ppo_memory",
        MeasuredReturn("8.9 to 11.0", 1.0, 3, "sampled actions", "1965-3692", "(observation='parts')"),
        known_settings.CRAFTAX,
        PublishedReturn(
            "12.2", 1.0, "model-based, Dedieu et al. 2025; Craftax's README at 0a2f7f9, 5.4% of 226"
        ),
        PublishedReturn("5.2", 1.0, "recurrent PPO of Craftax_Baselines; the same, 2.3%"),
    ),
    _one(
        "navix:Navix-DoorKey-8x8-v0",
        "ppo_mlp",
        MeasuredReturn("1.00", 1.0, 5, "sampled actions; greedy 0.78 to 1.00", "323-647", "(max_steps=640)"),
        known_settings.TILES,
        PublishedReturn("0.96 ± 0.04", 1.0, "NAVIX's PPO, baselines/rejax/baselines.md"),
    ),
    *(
        _one(
            f"navix:Navix-{name}-v0",
            "ppo_mlp",
            MeasuredReturn(score, 1.0, 1, seconds=seconds),
            known_settings.TILES,
            PublishedReturn(published, 1.0, "NAVIX's PPO, baselines/rejax/baselines.md"),
        )
        for name, score, seconds, published in (
            ("DistShift2", "1.00", "390", "1.00 ± 0.00"),
            ("Dynamic-Obstacles-6x6-Random", "0.63", "222", "0.67 ± 0.09"),
            ("Empty-Random-8x8", "1.00", "373", "1.00 ± 0.00"),
            ("GoToDoor-6x6", "1.00", "192", "1.00 ± 0.00"),
            ("LavaGapS6", "1.00", "183", "1.00 ± 0.00"),
            ("SimpleCrossingS9N1", "1.00", "588", "0.80 ± 0.40"),
        )
    ),
    _one(
        "xminigrid:MiniGrid-MemoryS8",
        "ppo_memory",
        MeasuredReturn("0.96 to 0.97", 8.0, 3, seconds="358-681"),
        known_settings.MEMORY_S8,
    ),
    _one(
        "envpool:HalfCheetah-v4",
        "ppo_mujoco",
        MeasuredReturn("4809 to 5866", 1.0, 5, seconds="124-145"),
        known_settings.HALF_CHEETAH,
        _zoo("5819 ± 664 in v3"),
        _cleanrl("1443 ± 46"),
    ),
    _one(
        "envpool:Walker2d-v4",
        "ppo_mujoco",
        MeasuredReturn("1080 to 4675", 1.0, 10, "five on each of two processors; median 4146", "208-661"),
        None,
        _zoo("3479 ± 822 in v3"),
        _cleanrl("2288 ± 572"),
    ),
    _one(
        "envpool:Hopper-v4",
        "ppo_mujoco",
        MeasuredReturn("924 to 3386", 1.0, 5, "median 2686", "135-172"),
        known_settings.HOPPER,
        _zoo("2410 ± 10 in v3"),
        _cleanrl("2383 ± 272"),
    ),
    _one(
        "envpool:Ant-v4",
        "ppo_mujoco",
        MeasuredReturn("2408 to 3506", 1.0, 5, seconds="391-509"),
        None,
        _zoo("1327 ± 452 in v3"),
    ),
    _one(
        "envpool:Humanoid-v4",
        "ppo_mujoco",
        MeasuredReturn("630 to 837", 1.0, 5, "mean 742", "549-807"),
        None,
        _cleanrl("716 ± 49"),
    ),
    _one(
        "envpool:BipedalWalker-v3",
        "ppo_mujoco",
        MeasuredReturn("191 to 288", 5.0, 5, "median 226", "593-760"),
        known_settings.BIPEDAL_WALKER,
        _zoo("213 ± 129", 5.0),
    ),
    _one(
        "envpool:LunarLander-v2",
        "ppo_mlp",
        MeasuredReturn("240 to 275", 1.0, 3, seconds="42-125"),
        known_settings.LANDER,
        _zoo("242 ± 32"),
    ),
    _one("envpool:Pong-v5", "ppo_atari", MeasuredReturn("-4", 1.5, 1), None, _zoo("21.0 ± 0.1", 10.0)),
    _one("envpool:CoinrunEasy-v0", "ppo_coinrun", MeasuredReturn("7.2", 0.6, 1)),
    _one(
        "jaxmarl:MPE_simple_spread_v3",
        "ippo_spread",
        MeasuredReturn("-56 to -55", 2.0, 5, seconds="23-87"),
        None,
        PublishedReturn("-68", 2.0, "JaxMARL's IPPO, run beside it"),
    ),
    _one(
        "jaxmarl:overcooked",
        "ippo_overcooked",
        MeasuredReturn(
            "457", 5.0, 1, "sampled actions", arguments="(layout='cramped_room', shaped_reward=1.0)"
        ),
        None,
        PublishedReturn("478", 5.0, "JaxMARL's IPPO, run beside it"),
    ),
    _one("jaxrl:Maze", "ppo_maze", MeasuredReturn("89% successes", 1.5, 1, "sampled actions")),
    _one(
        "jaxrl:Navigation", "ppo_navigation", MeasuredReturn("95 to 96% successes", 8.0, 3, seconds="180-360")
    ),
    _one("jaxrl:Platformer", "ppo_platformer", MeasuredReturn("91% successes", 8.0, 1)),
    _one("jaxrl:ProbeMemory", "ppo_memory"),
    *(
        _one(f"jaxrl:memory/{name}Easy", "ppo_memory", returned, known_settings.CARDS, _popgym(published))
        for name, returned, published in (
            ("Autoencode", MeasuredReturn("-0.29 to -0.23", 0.8, 5, seconds="154"), "-0.283 ± 0.029"),
            ("HigherLower", MeasuredReturn("0.52", 1.0, 5, seconds="176"), "0.529 ± 0.002"),
            ("RepeatFirst", MeasuredReturn("1.000", 0.3, 5, seconds="81"), "1.000 ± 0.000"),
            ("RepeatPrevious", MeasuredReturn("1.000", 0.4, 5, seconds="94"), "1.000 ± 0.000"),
            ("CountRecall", MeasuredReturn("0.14 to 0.50", 1.0, 5, "mean 0.28", "179"), "0.177 ± 0.005"),
        )
    ),
    _one(
        "jaxrl:memory/MultiarmedBanditEasy",
        "ppo_memory",
        MeasuredReturn("0.57 to 0.64", 3.0, 5, seconds="490"),
        known_settings.BANDIT,
        _popgym("0.619 ± 0.007"),
    ),
    _one(
        "jaxrl:memory/PositionOnlyCartPoleEasy",
        "ppo",
        MeasuredReturn("1.000", 0.3, 5, seconds="79"),
        None,
        _popgym("1.000 ± 0.000"),
    ),
    _one(
        "jaxrl:memory/NoisyPositionOnlyCartPoleEasy",
        "ppo",
        MeasuredReturn("0.83", 2.0, 1),
        None,
        _popgym("0.995 ± 0.000"),
    ),
    _one("jaxrl:TicTacToe", "ppo_tictactoe", MeasuredReturn("no game of 2,000 lost to perfect play", 3.0, 1)),
    _one("pettingzoo:simple_spread_v3", "ippo_spread"),
    _one(
        "pgx:connect_four",
        "ppo_connect_four",
        MeasuredReturn("96 to 98% of games won against greedy moves", 6.0, 3),
    ),
    KnownEnvironment(("navix:*",), "ppo_mlp", settings=known_settings.TILES),
    KnownEnvironment(
        ("envpool:LunarLander-v*", "gymnasium:LunarLander-v*"), "ppo_mlp", settings=known_settings.LANDER
    ),
    *(
        KnownEnvironment((f"envpool:{name}-v*", f"gymnasium:{name}-v*"), "ppo_mujoco", settings=settings)
        for name, settings in {
            "Hopper": known_settings.HOPPER,
            "HalfCheetah": known_settings.HALF_CHEETAH,
            "BipedalWalker": known_settings.BIPEDAL_WALKER,
        }.items()
    ),
    KnownEnvironment(
        (
            "jaxrl:memory/RepeatFirst*",
            "jaxrl:memory/RepeatPrevious*",
            "jaxrl:memory/Autoencode*",
            "jaxrl:memory/CountRecall*",
            "jaxrl:memory/HigherLower*",
        ),
        "ppo_memory",
        settings=known_settings.CARDS,
    ),
    KnownEnvironment(
        (
            "jaxrl:memory/PositionOnlyCartPole*",
            "jaxrl:memory/NoisyPositionOnlyCartPole*",
            "jaxrl:memory/VelocityOnlyCartPole*",
        ),
        "ppo",
    ),
    KnownEnvironment(("jaxrl:memory/MultiarmedBandit*",), "ppo_memory", settings=known_settings.BANDIT),
    KnownEnvironment(("jaxrl:memory/*",), "ppo_memory"),
)


def known_environment(name: str) -> KnownEnvironment | None:
    """The entry of an environment, whatever its arguments; None for one that no entry names.

    An entry for the environment itself goes before one for its family. Wrappers take what the environment
    shows by default: with an argument `observation` an entry that has some does not count.
    """
    own, arguments = without_arguments(name), name.partition("(")[2]
    known = [
        each
        for each in KNOWN
        if "env.wrappers" not in each.settings or not re.search(r"\bobservation *=", arguments)
    ]
    exact = (each for each in known if own in each.names)
    family = (each for each in known if any(fnmatch.fnmatchcase(own, pattern) for pattern in each.names))
    return next(exact, None) or next(family, None)
