"""Checks of what a device environment does: that methods are pure, that episodes end. Plays a few."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.agents import MultiAgentEnv, WholeEnv
from jaxrl.envs.base import Box, Dict, Discrete, JaxEnv, Mixed, MultiDiscrete, Space
from jaxrl.envs.checks import KEEPS_ARRAYS, PURE, Types, explain, refuse_first
from jaxrl.envs.games import Game, game_of
from jaxrl.envs.games.players import evenly
from jaxrl.envs.numbering import counted_from_zero
from jaxrl.envs.spaces import has_choice, sample
from jaxrl.envs.tasks import default_task
from jaxrl.envs.trees import select_rows, strong_types

_EPISODES = 4
_TASK = 0x5441534B  # folded into the key of an episode
# No longer episode is played: that the limit holds is then not checked.
_LONGEST_EPISODE = 10_000
_STACKED_STEPS = 20  # that are played to look at stacks of frames
_MASKED_STEPS = 1000  # that are played to look at masks, if episodes have no such limit
_SEEN_STEPS = 100  # that are played to look at values, if they have neither limit nor masks
_MOVES = 200  # of a game, that are played to look at turns


def check_behaviour(label: str, env: JaxEnv, finite: bool = False) -> None:
    """Checks that methods depend on their arguments alone, and that episodes end in time; plays a few.

    ValueError, which begins with `label`, for the first problem. Integers of `env` are counted from 0, see
    `EnvSpec.counts_from_zero`. `finite` refuses NaN and infinity too, which a run answers by `nonfinite`.
    """
    for method, arguments in Types(label, env).arguments.items():
        where = f"{label}: {method}()"
        function = getattr(env, method)
        first, second = (_program(where, function, arguments) for _ in range(2))
        if first != second:
            raise ValueError(f"{where} does something else at its second call; {PURE}")
    refuse_first(label, _faults(env, finite))


def _faults(env: JaxEnv, finite: bool) -> Iterator[str]:
    frames = env.spec.stacked_frames
    if frames > 1 and not jax.jit(lambda key: _is_stack(env, key))(jax.random.key(0)):
        text = "stacks of that many frames, but reset() or step() returns no such stacks: leave it at 1"
        yield f"spec.stacked_frames (={frames}) declares {text}"
    game = game_of(env)
    # A custom environment may call something else so.
    if isinstance(game, Game) and game.alternates and _moves_twice(game):
        text = "opponents would miss the second move; set it to False"
        yield f"a player of its game moved twice in a row, and `alternates` is True: {text}"
    limit = env.spec.max_episode_steps
    limit_to_reach = limit if limit is not None and limit <= _LONGEST_EPISODE else None
    looks = finite or _has_integers(env.spec.observation_space)
    if limit_to_reach is None and not env.spec.has_action_mask and not looks:
        return
    steps = limit_to_reach or (_MASKED_STEPS if env.spec.has_action_mask else _SEEN_STEPS)
    played = WholeEnv(cast(MultiAgentEnv, env)) if env.spec.agents else env
    found = jax.jit(lambda key: _play(played, key, steps))(jax.random.key(0))
    if not found.counted:
        text = f"which a policy cannot tell from others: {env.spec.observation_space}"
        yield f"reset() or step() returned an integer outside of spec.observation_space, {text}"
    for what, sound in (("an observation", found.finite_obs), ("a reward", found.finite_reward)):
        if finite and not sound:
            yield f"reset() or step() returned {what} with NaN or infinity in it"
    if not found.allowed:
        yield "action_mask() allowed no action in the middle of an episode; let at least one be True"
    if limit_to_reach is not None and not found.ended:
        text = "terminate or truncate by then, declare None, or add the wrapper time_limit"
        yield f"step() let an episode go on past spec.max_episode_steps (={limit}); {text}"


class _Found(NamedTuple):
    """Findings about random episodes, bool[] each; values after the end of an episode do not count."""

    ended: jax.Array  # all of them in time
    allowed: jax.Array  # always some action
    counted: jax.Array  # integers of observations lie in their spaces
    finite_obs: jax.Array
    finite_reward: jax.Array


def _play(env: JaxEnv, key: jax.Array, steps: int) -> _Found:
    keys = jax.random.split(key, _EPISODES)
    space = env.spec.action_space
    state, obs = strong_types(jax.vmap(env.reset)(keys, *_tasks(env, keys)))

    def step(t: jax.Array, loop: tuple[Any, jax.Array, _Found]) -> tuple[Any, jax.Array, _Found]:
        state, ended, found = loop
        step_keys = jax.vmap(lambda key: jax.random.fold_in(key, t))(keys)
        action = jax.vmap(lambda key, state: random_action(env, key, state))(step_keys, state)
        allowed = jnp.ones((), bool)
        if env.spec.has_action_mask:
            assert isinstance(space, Discrete | MultiDiscrete)
            choice = has_choice(space, jax.vmap(env.action_mask)(state))
            allowed = (ended | (choice.all(axis=1) if env.spec.agents else choice)).all()
        state, timestep = strong_types(jax.vmap(env.step)(step_keys, state, action))
        seen = _seen(env, timestep.obs, timestep.reward, ended)
        found = jax.tree.map(jnp.logical_and, found, seen._replace(allowed=allowed))
        return state, ended | timestep.terminated | timestep.truncated, found

    none = jnp.zeros(_EPISODES, bool)
    begin = (state, none, _seen(env, obs, jnp.zeros(_EPISODES), none))
    _, ended, found = jax.lax.fori_loop(0, steps, step, begin)
    return found._replace(ended=ended.all())


def _seen(env: JaxEnv, obs: Any, reward: jax.Array, ended_E: jax.Array) -> _Found:
    def everywhere(sound: jax.Array) -> jax.Array:
        return (sound.reshape(_EPISODES, -1).all(axis=1) | ended_E).all()

    def finite(x: Any) -> jax.Array:
        is_float = jnp.issubdtype(x.dtype, jnp.floating)
        return everywhere(jnp.isfinite(x) if is_float else jnp.ones(x.shape, bool))

    def counted(space: Space, x: Any) -> jax.Array:
        if isinstance(space, Dict):
            return jnp.array([counted(part, x[name]) for name, part in space.spaces]).all()
        if isinstance(space, Box | Mixed):
            return jnp.ones((), bool)
        size = jnp.array(space.n if isinstance(space, Discrete) else space.nvec)
        return everywhere((x >= 0) & (x < size))

    sound = jnp.ones((), bool)
    return _Found(
        ended=sound,
        allowed=sound,
        counted=counted(env.spec.observation_space, obs),
        finite_obs=jnp.array([finite(x) for x in jax.tree.leaves(obs)]).all(),
        finite_reward=finite(reward),
    )


def _has_integers(space: Space) -> bool:
    if isinstance(space, Dict):
        return any(_has_integers(part) for _, part in space.spaces)
    return isinstance(space, Discrete | MultiDiscrete)


def _moves_twice(game: Game) -> jax.Array:
    """bool[], whether the same seat has two turns in a row in games of random moves."""

    def play(key: jax.Array) -> jax.Array:
        def move(t: jax.Array, loop: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
            state, found = loop
            move_key = jax.random.fold_in(key, t)
            after = strong_types(game.play(move_key, state, evenly(move_key, game.choices(state))))
            goes_on = ~game.is_over(state) & ~game.is_over(after)
            found |= goes_on & (game.seat(after) == game.seat(state))
            return jax.tree.map(lambda x, y: jnp.where(game.is_over(state), x, y), state, after), found

        begin = strong_types(game.start(key)), jnp.zeros((), bool)
        return jax.lax.fori_loop(0, _MOVES, move, begin)[1]

    return jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(0), _EPISODES)).any()


def _is_stack(env: JaxEnv, key: jax.Array) -> jax.Array:
    """bool[], whether observations of random actions are stacks as in `EnvSpec.stacked_frames`."""
    keys = jax.random.split(key, _EPISODES)
    state, obs = strong_types(jax.vmap(env.reset)(keys, *_tasks(env, keys)))
    size = obs.shape[-1] // env.spec.stacked_frames
    repeated = jnp.concatenate([obs[..., -size:]] * env.spec.stacked_frames, axis=-1)

    def step(t: jax.Array, loop: tuple[Any, Any, jax.Array, jax.Array]) -> Any:
        state, obs, ended, holds = loop
        step_keys = jax.vmap(lambda key: jax.random.fold_in(key, t))(keys)
        action = jax.vmap(lambda key, state: random_action(env, key, state))(step_keys, state)
        state, timestep = strong_types(jax.vmap(env.step)(step_keys, state, action))
        goes_on = timestep.obs[..., :-size] == obs[..., size:]
        holds &= (goes_on.reshape(_EPISODES, -1).all(axis=1) | ended).all()
        return state, timestep.obs, ended | timestep.terminated | timestep.truncated, holds

    begin = (state, obs, jnp.zeros(_EPISODES, bool), (obs == repeated).all())
    return jax.lax.fori_loop(0, _STACKED_STEPS, step, begin)[3]


def _tasks(env: JaxEnv, keys: jax.Array) -> tuple[Any, ...]:
    """(a task for each key,), half of them the default one and the others sampled; () if there are none."""
    space = env.spec.task_space
    if space is None:
        return ()
    drawn = jax.vmap(lambda key: sample(space, jax.random.fold_in(key, _TASK)))(keys)
    default = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(keys), *jnp.shape(x))), default_task(env))
    return (select_rows(jnp.arange(len(keys)) % 2 == 0, default, drawn),)


def random_action(env: JaxEnv, key: jax.Array, state: Any) -> Any:
    """An action sampled uniformly from the allowed ones in `state`; one for each of several agents."""
    space = env.spec.action_space
    mask = env.action_mask(state) if env.spec.has_action_mask else None
    if not env.spec.agents:
        return _random(space, key, mask)
    keys = jax.random.split(key, env.spec.num_agents)
    return jax.vmap(lambda key, mask: _random(space, key, mask))(keys, mask)


def _random(space: Space, key: jax.Array, mask: jax.Array | None) -> Any:
    if not isinstance(space, Discrete | MultiDiscrete):
        return counted_from_zero(space, sample(space, key))
    sizes = (space.n,) if isinstance(space, Discrete) else space.nvec
    allowed = jnp.ones(sum(sizes), bool) if mask is None else mask
    logits = jnp.split(jnp.where(allowed, 0.0, -jnp.inf), np.cumsum(sizes)[:-1])
    keys = jax.random.split(key, len(sizes))
    parts = [jax.random.categorical(k, part) for k, part in zip(keys, logits, strict=True)]
    return jnp.stack(parts).reshape(space.shape).astype(space.dtype)


def _program(where: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, list[bytes]]:
    """A method as text and constants; of a new function each time, since JAX caches traces."""
    try:
        traced = jax.make_jaxpr(lambda *args: function(*args))(*arguments)
    except Exception as error:
        raise ValueError(f"{where} {explain(error)}") from error
    if any(isinstance(x, jax.core.Tracer) for x in traced.consts):
        raise ValueError(f"{where} {KEEPS_ARRAYS}")
    keys = jax.dtypes.prng_key
    constants = [np.asarray(x).tobytes() for x in traced.consts if not jnp.issubdtype(x.dtype, keys)]
    return re.sub(r"0x[0-9a-f]+", "", str(traced.jaxpr)), constants
