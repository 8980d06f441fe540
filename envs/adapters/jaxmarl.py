"""JaxMARL (Rutherford et al. 2024), environments of several agents in JAX, as `MultiAgentEnv`."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.adapters.suite import load, raw_key, refusals, suite_rules
from jaxrl.envs.agents import MultiAgentEnv
from jaxrl.envs.base import Box, Discrete, EnvSpec, InfoMetric, TimeStep
from jaxrl.envs.names import changed_call, check_numbers, unknown
from jaxrl.envs.pictures import CannotRender
from jaxrl.envs.trees import strong_types

# They need an opponent's parameters, give observations of no agent, or need packages that PyPI does not have.
_LEFT_OUT = ("LearnedPolicyEnemySMAX", "storm", "storm_2p", "storm_np", "JaxRobotarium")
_MABRAX = ("ant_", "halfcheetah_", "hopper_", "humanoid_", "walker2d_")
_PIXELS, _HALF_WIDTH = 160, 1.6  # of a picture of particles, and what it shows of their plane


def names() -> Sequence[str]:
    """The environments that jaxmarl has registered and this adapter can make."""
    return tuple(name for name in _jaxmarl().registered_envs if not name.startswith(_LEFT_OUT))


@flax.struct.dataclass
class JaxMARLState:
    """The suite's own state, and bool[A], the agents that are still there."""

    env: Any
    here: jax.Array


class JaxMARL(MultiAgentEnv):
    """An environment of JaxMARL, stepped below its automatic reset.

    Observations are float32, shorter vectors padded by zeros; if agents have different numbers of actions,
    a mask shows which are theirs. An end by the limit of steps is a truncation, but of `switch_riddle`, whose
    days are part of the game. An agent that the suite calls done is gone from then on. In
    `HeuristicEnemySMAX`, `info["success"]` is whether the allies have won.

    Args:
      name: one of `names()`.
      shaped_reward: of Overcooked, by how much its shaped reward is added to what is learnt from; episodes
        are reported without it.
      kwargs: passed on to `jaxmarl.make`; `scenario` of SMAX and `layout` of Overcooked by their names.
    """

    def __init__(self, name: str, shaped_reward: float = 0.0, **kwargs: Any):
        label = f"jaxmarl:{name}"
        check_numbers(label, kwargs)
        self._is_mpe = name.startswith("MPE_")
        self._is_smax = name.endswith("SMAX")
        self._has_enemy = name == "HeuristicEnemySMAX"
        self._has_days = name == "switch_riddle"
        self._is_brax = name.startswith(_MABRAX)
        with refusals(label, kwargs, TypeError, AssertionError, ImportError):
            self._env = _jaxmarl().make(name, **_with_named_values(label, name, kwargs))
        self._agents = tuple(self._env.agents)
        if shaped_reward and not name.startswith("overcooked"):
            raise ValueError(
                f"{label} has no shaped reward, which shaped_reward (={shaped_reward!r}) would add"
            )
        self._shaped = float(shaped_reward)
        limit = getattr(self._env, "max_steps", None)
        # MPE and SMAX look at their clock before they advance it.
        self._limit = None if limit is None else int(limit) + (self._is_smax or self._is_mpe)
        if self._is_brax:
            self._limit = -(-self._env.episode_length // self._env.action_repeat)
        key = jax.random.key(0)
        with suite_rules():
            obs, state = jax.eval_shape(self._env.reset, jax.eval_shape(raw_key, key))
            self._shape = _common_shape(label, {agent: obs[agent].shape for agent in self._agents})
            spaces = [self._env.action_space(agent) for agent in self._agents]
            self._counts, action_space = _actions(label, spaces)
            self._legal = self._mask_function(state) if self._counts else None
        has_mask = self._legal is not None or len(set(self._counts)) > 1
        self.spec = EnvSpec(
            name=changed_call(label, JaxMARL, locals()),
            observation_space=Box.of(-np.inf, np.inf, self._shape),
            action_space=action_space,
            max_episode_steps=self._limit,
            has_action_mask=has_mask,
            reports=(InfoMetric("success", "last"),) if self._has_enemy else (),
            agents=self._agents,
            central_observation=self._central_space(state),
        )

    def reset(self, key: jax.Array) -> tuple[JaxMARLState, Any]:
        with suite_rules():
            obs, state = self._env.reset(raw_key(key))
        return JaxMARLState(strong_types(state), jnp.ones(len(self._agents), bool)), self._stack(obs)

    def step(self, key: jax.Array, state: JaxMARLState, action: jax.Array) -> tuple[JaxMARLState, TimeStep]:
        actions = dict(zip(self._agents, action, strict=True))
        for agent, count in zip(self._agents, self._counts, strict=False):
            actions[agent] = jnp.minimum(actions[agent], count - 1)
        with suite_rules():
            obs, after, rewards, dones, info = self._env.step_env(raw_key(key), state.env, actions)
            after = strong_types(after)
            reward, score = self._rewards(rewards, info)
            over = jnp.asarray(dones["__all__"], bool)
            done = jnp.stack([jnp.asarray(dones[agent], bool) for agent in self._agents])
            is_cut = over & self._is_cut(after)
        # Most environments call all agents done where the time is over; of SMAX only the dead are.
        died = done if self._is_smax else done & ~is_cut
        return JaxMARLState(after, state.here & ~done & ~over), TimeStep(
            obs=self._stack(obs),
            reward=reward,
            terminated=state.here & (died | (over & ~is_cut)),
            truncated=state.here & is_cut & ~died,
            info={"success": over & (reward.max() >= 1.0)} if self._has_enemy else {},
            score=score,
        )

    def present(self, state: JaxMARLState) -> jax.Array:
        return state.here

    def central(self, state: JaxMARLState) -> jax.Array:
        """float32[F]: of SMAX its `world_state`, of MPE the observations of all agents in their order."""
        with suite_rules():
            if self._is_smax:
                return jnp.asarray(self._env.get_world_state(state.env), jnp.float32)
            return self._stack(self._env.get_obs(state.env)).ravel()

    def action_mask(self, state: JaxMARLState) -> jax.Array:
        own = jnp.arange(max(self._counts)) < jnp.asarray(self._counts)[:, None]
        if self._legal is None:
            return own
        with suite_rules():
            legal = self._legal(state.env)
            mask = jnp.stack([_pad(legal[agent] > 0, (max(self._counts),)) for agent in self._agents])
        # Dead agents may do nothing, and nobody may after an end.
        return own & (mask | ~mask.any(axis=1, keepdims=True))

    def render(self, state: JaxMARLState) -> np.ndarray:
        """A picture, uint8[160, 160, 3], of the particles of MPE; of other environments CannotRender."""
        places = getattr(state.env, "p_pos", None)
        if places is None:
            raise CannotRender(f"{self.spec.name} cannot be rendered: only MPE can")
        at = (np.arange(_PIXELS) + 0.5) / _PIXELS * 2 * _HALF_WIDTH - _HALF_WIDTH
        x, y = np.meshgrid(at, -at)
        picture = np.full((_PIXELS, _PIXELS, 3), 255, np.uint8)
        radii = np.maximum(np.asarray(self._env.rad), 1.5 * _HALF_WIDTH / _PIXELS)
        for place, radius, colour in zip(np.asarray(places), radii, self._env.colour, strict=True):
            inside = (x - place[0]) ** 2 + (y - place[1]) ** 2 <= radius**2
            picture[inside] = np.asarray(colour, np.float64).clip(0, 255).astype(np.uint8)
        return picture

    def _central_space(self, state: Any) -> Box | None:
        if not (self._is_smax or self._is_mpe):
            return None
        given = JaxMARLState(state, jnp.ones(len(self._agents), bool))
        return Box.of(-np.inf, np.inf, jax.eval_shape(self.central, given).shape)

    def _rewards(self, rewards: Mapping[str, Any], info: Mapping[str, Any]) -> tuple[jax.Array, Any]:
        """(float32[A] to learn from, the reported rewards or None if they are the same)."""
        stack = lambda of: jnp.stack([jnp.asarray(of[a], jnp.float32) for a in self._agents])  # noqa: E731
        reward = stack(rewards)
        if not self._shaped:
            return reward, None
        return reward + self._shaped * stack(info["shaped_reward"]), reward

    def _is_cut(self, state: Any) -> jax.Array:
        """bool[], whether the limit of steps, if something ends there, is what ends the episode."""
        if self._is_brax:
            return state.info["truncation"] > 0
        if self._limit is None or self._has_days:
            return jnp.zeros((), bool)
        return getattr(state, "state", state).step >= self._limit

    def _stack(self, obs: Mapping[str, Any]) -> jax.Array:
        """float32[A, ...], observations in the order of the agents."""
        return jnp.stack([_pad(obs[agent].astype(jnp.float32), self._shape) for agent in self._agents])

    def _mask_function(self, state: Any) -> Callable[[Any], Mapping[str, Any]] | None:
        """The suite's own masks; None if it has none, or as JaxNav, of other numbers of actions."""
        found: Callable[[Any], Mapping[str, Any]] | None
        for name in ("get_legal_moves", "get_avail_actions"):
            found = getattr(self._env, name, None)
            try:
                masks = {} if found is None else jax.eval_shape(found, state)
            except NotImplementedError:
                continue
            if masks and tuple(masks[agent].size for agent in self._agents) == self._counts:
                return found
        return None


make = JaxMARL


def _jaxmarl() -> ModuleType:
    # It prints what it does not find, and sets the output back to the first one before it does.
    first = sys.__stdout__
    with contextlib.redirect_stdout(io.StringIO()) as nowhere:
        try:
            sys.__stdout__ = nowhere  # type: ignore[misc,assignment]
            return load("jaxmarl", "jaxmarl")
        finally:
            sys.__stdout__ = first  # type: ignore[misc]


def _with_named_values(label: str, name: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with what the suite has under a name in place of the name."""
    found = dict(kwargs)
    if name.endswith("SMAX") and isinstance(scenario := kwargs.get("scenario"), str):
        smax = load("jaxmarl.environments.smax.smax_env", "jaxmarl")
        if scenario not in smax.MAP_NAME_TO_SCENARIO:
            raise unknown(f"scenario of {label}", scenario, smax.MAP_NAME_TO_SCENARIO)
        found["scenario"] = smax.map_name_to_scenario(scenario)
    if name == "overcooked" and isinstance(layout := kwargs.get("layout"), str):
        layouts = load("jaxmarl.environments.overcooked", "jaxmarl").overcooked_layouts
        if layout not in layouts:
            raise unknown(f"layout of {label}", layout, layouts)
        found["layout"] = layouts[layout]
    if name.startswith(_MABRAX):
        found["auto_reset"] = False  # It would put the first observation in place of the last.
    return found


def _common_shape(label: str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    distinct = set(shapes.values())
    if len(distinct) == 1:
        return distinct.pop()
    if any(len(shape) != 1 for shape in distinct):
        raise ValueError(
            f"{label}: agents that share a policy observe vectors, or all the same; not {distinct}"
        )
    return max(distinct)


def _actions(label: str, spaces: Sequence[Any]) -> tuple[tuple[int, ...], Discrete | Box]:
    """(how many actions each agent has, or () of vectors; the space of all)."""
    if all(hasattr(space, "n") for space in spaces):
        counts = tuple(int(space.n) for space in spaces)
        return counts, Discrete(max(counts))
    boxes = {Box.of(x.low, x.high, tuple(x.shape)) for x in spaces if hasattr(x, "low")}
    if len(boxes) != 1 or not all(hasattr(x, "low") for x in spaces):
        raise ValueError(f"{label}: agents that share a policy have the same actions, or numbers of them")
    return (), boxes.pop()


def _pad(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return x if x.shape == shape else jnp.pad(x, (0, shape[0] - x.shape[0]))
