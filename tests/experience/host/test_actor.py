"""The thread that collects: which parameters it uses, and how it ends."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.host_env import HostEnvError, HostOptions
from jaxrl.experience.host.threads import Actor, Cancelled
from jaxrl.types import Acting
from tests.compiled_programs import loud, tiny_agent
from tests.experience.host.host_env import Playback
from tests.experience.host.playing import B, T, actors, keys_of, stepped

ROLLOUTS = 3


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [pytest.param(False, marks=pytest.mark.slow), True])
def test_actor_hands_over_parameters_and_rollouts(device, overlap):
    # With overlap the data are one iteration old, never more and never less.
    program, state, recorded = device
    scaled = [jax.tree.map(lambda x: x * (1 + i / 2), state.learner.policy) for i in range(ROLLOUTS)]  # noqa: B023
    by_hand = stepped(program.agent, Playback(program.env.spec, recorded))
    actor = Actor(stepped(program.agent, Playback(program.env.spec, recorded)), keys_of, overlap)
    with actor:
        for i in range(ROLLOUTS):
            used = max(0, i - 1) if overlap else i
            _, expected, expected_totals = by_hand.collect(None, scaled[used], keys_of(i))
            given = jax.tree.map(jnp.copy, scaled[i])
            got, totals = actor.rollout(i, given)
            for x in jax.tree.leaves(given):
                x.delete()  # as a learner does that donates its state
            if overlap:
                time.sleep(0.2)
            for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
                np.testing.assert_array_equal(x, y)
            assert totals.count == expected_totals.count
    assert not actors()
    with pytest.raises(RuntimeError, match="closed"):
        actor.rollout(ROLLOUTS, state.learner.policy)


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [False, True])
def test_failing_environment_ends_the_actor(device, overlap):
    program, state, recorded = device
    env = Playback(program.env.spec, recorded, fail="raise", fail_at=T + 5)
    actor = Actor(stepped(program.agent, env), keys_of, overlap)
    actor.rollout(0, state.learner.policy)
    with pytest.raises(HostEnvError, match=rf"^test:Noise, environment 2, step {T + 5}: broke$"):
        actor.rollout(1, state.learner.policy)
    assert env.closed
    assert not actors()


@pytest.mark.slow
def test_hanging_environment_ends_the_actor(device):
    program, state, recorded = device
    env = Playback(program.env.spec, recorded, num_groups=2, fail="hang")
    actor = Actor(stepped(program.agent, env), keys_of, overlap=False)
    with pytest.raises(
        HostEnvError, match=r"^test:Noise, environments 0 to 3, step 5: did not answer within"
    ):
        actor.rollout(0, state.learner.policy)
    assert env.closed
    assert not actors()


@pytest.mark.slow
def test_closing_gives_up_a_rollout_half_way(device):
    program, state, recorded = device
    env = Playback(program.env.spec, recorded)
    collector = stepped(program.agent, env)
    actor = Actor(collector, keys_of, overlap=True)
    actor.rollout(0, state.learner.policy)
    actor.close()
    assert env.closed
    assert not actors()
    collector = stepped(program.agent, Playback(program.env.spec, recorded))
    collector.cancel()
    with pytest.raises(Cancelled):
        collector.collect(None, state.learner.policy, keys_of(0))


@pytest.mark.slow
def test_environments_of_worker_processes_train_the_same_way():
    factory = envs.make_host("gymnasium:CartPole-v1(max_episode_steps=20)")
    agent = tiny_agent(factory.spec)
    params = loud(jax.jit(agent.network.init)(jax.random.key(0)))
    found = []
    for groups, workers in ((1, 1), (2, 2)):
        env = factory.start(HostOptions(seeds=tuple(range(B)), num_groups=groups, num_workers=workers))
        with Actor(stepped(agent, env), keys_of, overlap=True) as actor:
            found.append([actor.rollout(i, Acting(params, None))[0] for i in range(ROLLOUTS)])
        assert not env.process_ids
    for x, y in zip(jax.tree.leaves(found[0]), jax.tree.leaves(found[1]), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
    assert not all(t.valid.all() for t in found[0])
