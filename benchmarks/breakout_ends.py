"""Plays gymnax's Breakout with trained policies and says how episodes end (docs/results.md).

    python benchmarks/breakout_ends.py RUN ...

For each run folder, its latest checkpoint: returns of 64 greedy and 64 sampled episodes of the plain game,
whatever wrappers training had, how many still play at the limit, and the bricks that are left. Of one greedy
episode that loses the ball: the last step from which a search over all actions keeps it for `AHEAD` steps,
and how many of 200 sampled actions at that step do so.
"""

from __future__ import annotations

import argparse
from collections import Counter
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnax.environments.minatar.breakout import MinBreakout

import jaxrl

EPISODES, SAMPLES, AHEAD, ACTIONS = 64, 200, 12, 3
ENV = MinBreakout()
PARAMS = ENV.default_params


@jax.jit
@jax.vmap
def step(state: Any, action: jax.Array) -> tuple[Any, Any, jax.Array]:
    obs, state, reward, *_ = ENV.step_env(jax.random.key(0), state, action, PARAMS)
    return obs, state, reward


def play(policy: Any, sample: bool) -> tuple[np.ndarray, np.ndarray, list[Any], Any]:
    """(returns, which episodes play on at the limit, every state before, those after)."""
    obs, state = jax.vmap(lambda key: ENV.reset_env(key, PARAMS))(
        jax.random.split(jax.random.key(0), EPISODES)
    )
    returns, alive, states = np.zeros(EPISODES), np.ones(EPISODES, bool), []
    for _ in range(PARAMS.max_steps_in_episode):
        states.append(state)
        action, _ = policy.act(np.asarray(obs), sample=sample)
        obs, state, reward = step(state, jnp.asarray(action))
        returns += alive * np.asarray(reward)
        alive &= ~np.asarray(state.terminal)
        if not alive.any():
            break
    return returns, alive, states, state


def keeping(state: Any) -> list[int]:
    """The actions after which some way to go on keeps the ball for `AHEAD` steps in all."""
    found = []
    for first in range(ACTIONS):
        states = jax.tree.map(lambda x: jnp.asarray(x)[None], state)
        for i in range(AHEAD):
            actions = jnp.array([first]) if i == 0 else jnp.arange(ACTIONS)
            count = len(states.terminal)
            spread = jax.tree.map(partial(jnp.repeat, repeats=len(actions), axis=0), states)
            _, after, _ = step(spread, jnp.tile(actions, count))
            rows = np.stack([np.asarray(x) for x in (after.pos, after.ball_x, after.ball_y, after.ball_dir)])
            rows[:, np.asarray(after.terminal)] = -1
            # Ways to the same place count once, though they may have broken other bricks after a contact.
            _, unique = np.unique(rows, axis=1, return_index=True)
            unique = unique[rows[0, unique] >= 0]
            if not len(unique):
                break
            states = jax.tree.map(lambda x, at=unique: x[at], after)
        else:
            found.append(first)
    return found


def describe_end(policy: Any, states: list[Any]) -> str:
    """Where the first episode could still have kept the ball."""
    one = [jax.tree.map(lambda x: x[0], state) for state in states]
    last = next((i for i, state in enumerate(one) if bool(state.terminal)), len(one))
    for back in range(1, 40):
        good = keeping(one[last - back])
        if good:
            obs = np.repeat(np.asarray(ENV.get_obs(one[last - back]))[None], SAMPLES, axis=0)
            sampled = np.asarray(policy.act(obs, sample=True)[0])
            hits = int(np.isin(sampled, good).sum())
            return f"ends after {last} steps; kept from {back} before by {good}: {hits} of {SAMPLES} samples"
    return f"ends after {last} steps"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", metavar="RUN")
    for run in parser.parse_args().runs:
        policy = jaxrl.load(run, checkpoint="latest")
        for sample in (False, True):
            returns, alive, states, after = play(policy, sample)
            bricks = np.asarray(after.brick_map).sum((1, 2))[alive].astype(int).tolist()
            print(
                f"{run} {'sampled' if sample else 'greedy'}: {returns.mean():.1f} "
                f"({returns.min():.0f} to {returns.max():.0f}), {alive.sum()} at the limit, "
                f"bricks left there: {dict(Counter(bricks))}"
            )
            if not sample and not alive[0]:
                print(f"  {describe_end(policy, states)}")


if __name__ == "__main__":
    main()
