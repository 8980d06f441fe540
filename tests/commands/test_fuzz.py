"""Absurd configurations: each ends with exit code 2, one line, and no run folder."""

from __future__ import annotations

import contextlib
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from flax import linen as nn

from jaxrl.config import declared_fields
from jaxrl.envs.base import Box, Discrete, EnvSpec, JaxEnv, TimeStep
from jaxrl.main import main

FEW, CASES, SEED, SECONDS = 100, 1_000, 0, 60

# Whatever is not refused ends after one iteration.
BASE = {
    "num_devices": "1",
    "env.name": "gymnax:CartPole-v1",
    "env.wrappers": "()",
    "stop.steps": "1",
    "evaluate.episodes": "1",
    "network.hidden_sizes": "8",
    "network.core_size": "8",
}

HUGE = [2**53 + 1, 2**63, 2**64, 10**20, 10**30, 10**100, -1, -(2**31) - 1, -(10**30), 10**4000]
PAST_INT32 = [2**31, 2**31 + 1, 2**32, 2**32 + 7, 2**40, 4_300_000_000]
FLOATS = [
    "1e300",
    "-1e300",
    "1e39",
    "-3.5e38",
    "1e-300",
    "1e-39",
    "inf",
    "-inf",
    "nan",
    "1e999",
    "1" + "0" * 400,
]
NONSENSE = [
    "'x'",
    "None",
    "()",
    "(1,2)",
    "[1]",
    "{'a':1}",
    "1j",
    "b'x'",
    "'" + "x" * 200 + "'",
    "True",
    "-1",
    "0",
]
TOO_LARGE = ["2**40", "1099511627776", "-2147483649", "1e300", "-1e39", "10000000000"]

IN_32_BITS = (
    "env.num_envs ppo.rollout_length ppo.num_epochs ppo.num_minibatches ppo.sequence_length "
    "ppo.gradient_accumulation ppo.warmup_updates network.core_size network.hidden_sizes host.num_groups "
    "host.num_workers num_devices evaluate.episodes"
).split()
# Objects that are no factories of encoders, cores or heads.
OBJECTS = (
    "os:system os:path sys:exit shutil:rmtree builtins:eval builtins:print subprocess:run subprocess:Popen "
    "math:pi json:dumps os.path:join numpy:ndarray jax.numpy:zeros flax.linen:Dense flax.linen:Module "
    "jaxrl.networks:Core jaxrl.networks.encoders:MLP jaxrl.networks.encoders:build_encoder "
    "jaxrl.networks.cores:build_core jaxrl.networks.heads:build_head jaxrl.networks:ENCODERS "
    "jaxrl.main:main envs:make nowhere:thing os:nothing :x x: : a:b:c ../x:y .:. os.:system 1:2 é:é"
).split()
OWN = "nothing number text raising calling_nothing features_of_nothing".split()
ENVIRONMENTS = (
    "os:system sys:exit math:pi jax:Array flax.linen:Module collections:OrderedDict builtins:object "
    "jaxrl.networks:Core jaxrl.envs.base:JaxEnv envs.base:JaxEnv nowhere:Env gymnax: :CartPole-v1 : "
    "CartPole-v9 gymnax:CartPole-v9 "
    "jaxrl:Prob envpool:Nothing-v0 envpool: gymnasium: x.y.z:W ../x:y gymnax:CartPole-v1(( "
    "gymnax:CartPole-v1(1) gymnax:CartPole-v1(a=b) gymnax:CartPole-v1(**{}) "
    "tests.commands.test_fuzz:Empty tests.commands.test_fuzz:Sad"
).split()
# name, its arguments that are numbers.
ARGUMENTS = {
    "gymnax:CartPole-v1": ["max_steps_in_episode", "gravity", "nothing"],
    "gymnax:Pendulum-v1": ["max_steps_in_episode", "g", "dt"],
    "gymnax:Catch-bsuite": ["rows", "columns"],
    "gymnax:DeepSea-bsuite": ["size", "deterministic"],
    "gymnax:MemoryChain-bsuite": ["memory_length", "num_bits"],
    "gymnax:UmbrellaChain-bsuite": ["chain_length", "n_distractor"],
    "jaxrl:ProbeMemory": ["delay"],
    "jaxrl:ProbeTruncation": ["steps"],
    "jaxrl:ProbeDiscount": ["nothing"],
    "envpool:Pong-v5": ["img_height", "img_width", "stack_num", "frame_skip", "num_envs", "nothing"],
    "envpool:CartPole-v1": ["max_episode_steps", "num_envs"],
    "tests.commands.test_fuzz:Sad": ["nothing"],
}
WRAPPERS = {
    "time_limit": ["steps"],
    "select_observation": ["indices"],
    "limit_cost": ["index"],
    "sticky_actions": ["nothing"],
    "flatten_observation": ["x"],
    "nothing": ["x"],
    "one_hot_observation": ["n"],
}
WRAPPERS_TAKE = {"(1,2)", "[1]"}  # as indices


class Empty:
    """No environment."""


class Wide(JaxEnv):
    """Has `n` actions."""

    def __init__(self, n: int) -> None:
        self.spec = EnvSpec("Wide", Box.of(0.0, 1.0, (1,)), Discrete(n))

    def reset(self, key: Any) -> tuple[Any, Any]:
        return jnp.zeros(1), jnp.zeros(1)

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, TimeStep]:
        return state, TimeStep(state, 1.0, False, True)


class Sad:
    """Cannot be made."""

    def __init__(self) -> None:
        raise ZeroDivisionError("never\nmind")

    def reset(self, key: Any) -> None:
        """Nothing."""

    def step(self, key: Any, state: Any, action: Any) -> None:
        """Nothing."""


class _Calling(nn.Module):
    returns: Any = None

    def __call__(self, *arguments: Any) -> Any:
        return self.returns


def nothing(network: Any, space: Any = None) -> None:
    """No module."""


def number(network: Any, space: Any = None) -> int:
    return 3


def text(network: Any, space: Any = None) -> str:
    return "x"


def raising(network: Any, space: Any = None) -> None:
    raise LookupError("not\nhere")


def calling_nothing(network: Any, space: Any = None) -> nn.Module:
    return _Calling()


def features_of_nothing(network: Any, space: Any = None) -> nn.Module:
    return _Calling("features")


def cases(count: int, seed: int) -> Iterator[list[str]]:
    """Command lines, each with something absurd in it; the same for the same seed."""
    rng = random.Random(seed)
    kinds = [_integer, _small_integer, _real, _part, _environment, _argument, _wrapper, _memory, _flag, _type]
    for i in range(count):
        changes, flags = BASE.copy(), []
        made = kinds[i % len(kinds)](rng)
        if made[0].startswith("--"):
            flags = list(made)
        else:
            changes |= dict(zip(made[::2], made[1::2], strict=True))
        overrides = [f"--config.{field}={value}" for field, value in changes.items()]
        yield [*overrides, *flags]


def _fields(*kinds: Any) -> list[str]:
    return [name for name, field in declared_fields().items() if field.kind in kinds]


def _integer(rng: random.Random) -> tuple[str, ...]:
    names = [*_fields(int), "network.hidden_sizes"]
    return rng.choice(names), str(rng.choice(HUGE))


def _small_integer(rng: random.Random) -> tuple[str, ...]:
    return rng.choice(IN_32_BITS), str(rng.choice(PAST_INT32))


def _real(rng: random.Random) -> tuple[str, ...]:
    return rng.choice(_fields(float, float | None)), rng.choice(FLOATS)


def _part(rng: random.Random) -> tuple[str, ...]:
    field = rng.choice(["network.encoder", "network.core", "network.head"])
    return field, rng.choice([*OBJECTS, *(f"tests.commands.test_fuzz:{name}" for name in OWN)])


def _environment(rng: random.Random) -> tuple[str, ...]:
    return rng.choice(["env.name", "env.name", "evaluate.unseen"]), rng.choice(ENVIRONMENTS)


def _argument(rng: random.Random) -> tuple[str, ...]:
    name = rng.choice(list(ARGUMENTS))
    argument = rng.choice(ARGUMENTS[name])
    return "env.name", f"{name}({argument}={rng.choice(TOO_LARGE + NONSENSE[:9])})"


def _wrapper(rng: random.Random) -> tuple[str, ...]:
    name = rng.choice(list(WRAPPERS))
    values = [value for value in TOO_LARGE + NONSENSE if value not in WRAPPERS_TAKE]
    return "env.wrappers", f"{name}({rng.choice(WRAPPERS[name])}={rng.choice(values)})"


def _memory(rng: random.Random) -> tuple[str, ...]:
    """More than a terabyte, or more than 32 bits can count."""
    size, power, actions = rng.randint(60_000, 65_536), rng.randint(20, 30), rng.randint(2**30, 2**31 - 1)
    wide = "tests.commands.test_fuzz:Wide"
    return rng.choice(
        [
            ("network.core_size", str(size), "network.hidden_sizes", "(65536,65536,65536,65536,65536)"),
            ("network.hidden_sizes", f"({'65536,' * rng.randint(20, 64)})"),
            ("network.hidden_sizes", f"({'8,' * rng.randint(65, 1_000)})"),
            ("env.num_envs", str(2**power), "ppo.rollout_length", str(2**16)),
            ("env.name", f"{wide}(n={2 ** (11 + power)})"),
            ("env.name", f"{wide}(n={actions})", "network.core_size", "1024"),
        ]
    )


def _flag(rng: random.Random) -> tuple[str, ...]:
    flag = rng.choice(["num_processes", "process_id", "heartbeat", "watchdog", "join", "coordinator"])
    return (f"--{flag}={rng.choice(['9' * 20, '-1', '1e9', 'nan', 'x', ' ', '9' * 5_000])}",)


def _type(rng: random.Random) -> tuple[str, ...]:
    names = _fields(int, float, bool)
    deep = ["(" * 500, "[" * 5_000, "{" * 300, "9" * 6_000, "-" * 2_000 + "1"]
    return rng.choice(names), rng.choice(["'x'", "()", "(1,2)", "{'a':1}", "1j", "b'x'", "os.system", *deep])


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Ends what is inside by an error that nothing catches."""

    class Endless(BaseException):
        pass

    def end(*_: Any) -> None:
        raise Endless

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def problem_of(arguments: list[str], workdir: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """How a case ended otherwise than it should have; empty if it did not."""
    try:
        with limited(SECONDS):
            code: Any = main(["jaxrl", "--config=ppo", f"--workdir={workdir}", *arguments])
    except BaseException as error:
        code = f"{type(error).__name__}: {str(error)[:200]}"
    output, error_text = capfd.readouterr()
    if code != 2:
        return f"ended with {code}"
    if output or not error_text.startswith("error: ") or error_text.count("\n") != 1:
        return f"said {(output + error_text)[:300]!r}"
    if len(error_text) > 8_000:
        return f"said {len(error_text)} characters"
    return "left the run folder behind" if workdir.exists() else ""


@pytest.mark.parametrize(
    "count", [pytest.param(FEW, marks=pytest.mark.slow), pytest.param(CASES, marks=pytest.mark.long)]
)
def test_absurd_configurations_are_refused_in_one_line(
    count: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    failed = []
    for i, arguments in enumerate(cases(count, SEED)):
        if found := problem_of(arguments, tmp_path / f"run{i}", capfd):
            changed = [a[:120] for a in arguments if a not in {f"--config.{k}={v}" for k, v in BASE.items()}]
            failed.append(f"case {i}: {' '.join(changed)}: {found}")
    assert not failed, f"{len(failed)} of {count}:\n" + "\n".join(failed)


def test_some_of_them(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for i, arguments in enumerate(cases(10, SEED)):
        assert not problem_of(arguments, tmp_path / f"run{i}", capfd), arguments
