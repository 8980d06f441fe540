"""Rollouts that are one program against those that step the same environments from Python."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.host_env import HostEnvError, HostOptions
from jaxrl.experience.host.fused_collector import FusedCollector
from jaxrl.experience.host.stepped_collector import SteppedCollector
from jaxrl.experience.host.threads import Actor, Cancelled
from jaxrl.metrics.clock import Clock
from jaxrl.parallel.sharding import Topology
from jaxrl.programs.host_runtime import HostRuntime
from jaxrl.types import Acting
from tests.compiled_programs import loud, tiny_agent, tiny_config
from tests.experience.host.host_env import Playback, TracedPlayback
from tests.experience.host.playing import B, T, actors, fused, keys_of, stepped

ROLLOUTS = 5  # of which at most three are stepped from Python
SMALL = "img_height=42, img_width=42, max_episode_steps=50"
ATARI = f"envpool:Breakout-v5(episodic_life=True, reward_clip=True, {SMALL})"


def collected(collector_of, env, agent, params, staggered):
    collector, given = collector_of(agent, env, staggered=staggered), Acting(params, None)
    collector.prepare(given, keys_of(0))
    found = [collector.collect(None, given, keys_of(i))[1:] for i in range(ROLLOUTS)]
    env.close()
    return collector, [jax.tree.map(np.asarray, each) for each in found]


def assert_same(left, right):
    for x, y in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, atol=1e-5)


# The fast tests hold it to the promises of tests/experience/test_contract.py.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "cuts", "groups"),
    [
        ("envpool:CartPole-v1(max_episode_steps=20)", None, 1),
        ("envpool:CartPole-v1(max_episode_steps=20)", (3, 40, 1, 17, 20, 5, 9, 2), 2),
        ("envpool:MiniGrid-MemoryS7-v0(max_episode_steps=9, keys=('image',))", None, 1),
        pytest.param(ATARI, None, 2, marks=pytest.mark.long),
    ],
    ids=["CartPole", "CartPole-staggered", "MiniGrid", "Breakout"],
)
def test_one_program_steps_as_python_does(name, cuts, groups):
    factory = envs.make_host(name)
    agent = tiny_agent(factory.spec)
    params = loud(jax.jit(agent.network.init)(jax.random.key(0)))
    options = HostOptions(seeds=tuple(range(B)), num_groups=groups, first_episode_steps=cuts)
    plain, expected = collected(stepped, factory.start(options), agent, params, cuts is not None)
    one, got = collected(fused, factory.start(options), agent, params, cuts is not None)
    assert_same(got, expected)
    assert not all(trajectory.valid.all() for trajectory, _ in got[2:])
    assert sum(totals.count for _, totals in got[2:]) > 0
    assert one.waits() == {}
    assert plain.waits().keys() == {"environments", "inference"}
    assert one._groups is not None  # the last rollouts were not stepped from Python


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [("envpool:CartPole-v1", FusedCollector), ("envpool:HalfCheetah-v4", SteppedCollector)],
)
def test_training_fuses_what_can_be_traced(name, kind):
    runtime = HostRuntime(tiny_config(env__name=name), Topology.of(1), Clock(), lambda: False)
    collector = runtime._start(jax.random.key(0), 0)
    collector.env.close()
    assert type(collector) is kind


@pytest.mark.slow
def test_environments_with_64_bit_types_are_stepped_from_python():
    factory = envs.make_host("envpool:HalfCheetah-v4")
    agent = tiny_agent(factory.spec)
    env = factory.start(HostOptions(seeds=tuple(range(B))))
    assert env.traced() is None
    collector, _ = collected(stepped, env, agent, jax.jit(agent.network.init)(jax.random.key(0)), False)
    assert collector.waits()["environments"] > 0


@pytest.mark.slow
def test_the_same_with_and_without_overlap(device):
    program, state, recorded = device
    for overlap in (False, True):
        plain = stepped(program.agent, Playback(program.env.spec, recorded, 2))
        one = fused(program.agent, TracedPlayback(program.env.spec, recorded, 2))
        with Actor(one, keys_of, overlap) as actor:
            actor.prepare(state.learner.policy)
            for i in range(3):
                got, _ = actor.rollout(i, jax.tree.map(jnp.copy, state.learner.policy))
                assert_same(got, plain.collect(None, state.learner.policy, keys_of(i))[1])


@pytest.mark.slow
def test_number_that_is_not_finite_is_named():
    # Pendulum takes actions without a look at them: a policy of NaN breaks it at its first step.
    factory = envs.make_host("envpool:Pendulum-v1")
    agent = tiny_agent(factory.spec)
    params = jax.jit(agent.network.init)(jax.random.key(0))
    env = factory.start(HostOptions(seeds=tuple(range(B)), num_groups=2))
    collector, given = fused(agent, env), Acting(params, None)
    collector.collect(None, given, keys_of(0))
    collector.collect(None, given, keys_of(1))
    broken = jax.tree.map(lambda x: x * np.nan, given)
    with pytest.raises(HostEnvError, match=r"environment 0, step 33: returned an observation that is not"):
        collector.collect(None, broken, keys_of(2))
    with pytest.raises(HostEnvError, match="is closed"):
        collector.collect(None, given, keys_of(3))


@pytest.mark.slow
def test_closing_gives_up_the_next_rollout(device):
    program, state, recorded = device
    collector = fused(program.agent, TracedPlayback(program.env.spec, recorded))
    collector.collect(None, state.learner.policy, keys_of(0))
    collector.cancel()
    with pytest.raises(Cancelled):
        collector.collect(None, state.learner.policy, keys_of(1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fail", "problem"),
    [("raise", ".*broke"), pytest.param("hang", "did not answer within 0.3 s", marks=pytest.mark.slow)],
)
def test_broken_environment_ends_the_actor(device, fail, problem):
    program, state, recorded = device
    env = TracedPlayback(program.env.spec, recorded, fail=fail, fail_at=T + 5)
    actor = Actor(fused(program.agent, env), keys_of, overlap=False)
    actor.prepare(state.learner.policy)
    actor.rollout(0, state.learner.policy)
    with pytest.raises(HostEnvError, match=f"^test:Noise, environments 0 to 7, steps 17 to 32: {problem}"):
        actor.rollout(1, state.learner.policy)
    assert env.closed
    assert not actors()


FOREVER = """
import sys, time
from jaxrl.envs.host_env import HostEnvError
from jaxrl.experience.host.threads import Actor
from tests.compiled_programs import start, tiny_program
from tests.experience.host.host_env import TracedPlayback, record
from tests.experience.host.playing import T, fused, keys_of

class Forever(TracedPlayback):
    def interrupt(self):
        "Nothing can."

program = tiny_program()
state = start(program)
env = Forever(program.env.spec, record(program, state, 2 * T), fail="hang", fail_at=T + 5)
actor = Actor(fused(program.agent, env), keys_of, overlap=False)
actor.prepare(state.learner.policy)
actor.rollout(0, state.learner.policy)
try:
    actor.rollout(1, state.learner.policy)
except HostEnvError as error:
    sys.exit(str(error))
"""


@pytest.mark.long
def test_process_ends_although_its_program_hangs():
    done = subprocess.run([sys.executable, "-c", FOREVER], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "did not answer within 0.3 s" in done.stderr
