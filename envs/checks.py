"""Checks of a device environment that a user has written: what it declares against what it returns.

Every problem is one line that names the environment, the method and the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs import modules
from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, JaxEnv, Mixed, MultiDiscrete, Space, TimeStep
from jaxrl.envs.reports import names_of
from jaxrl.envs.spaces import bounds, zeros
from jaxrl.envs.tasks import default_task, takes_task
from jaxrl.envs.trees import strong_types

_LONGEST_TEXT = 300
_STEP = "return (state, jaxrl.TimeStep(obs, reward, terminated, truncated))"
_BY_VALUE = (
    "uses the value of an array in Python (if, while, int, numpy): use jnp.where, jax.lax.cond and jnp"
)
PURE = (
    "it must depend on its arguments alone, and keep what it needs in `state` and random numbers from `key`"
)
KEEPS_ARRAYS = f"keeps arrays from one call to the next; {PURE}"


def check_types(label: str, env: Any) -> bool:
    """Checks spaces, shapes and dtypes by tracing `reset`, `step` and `action_mask`; runs nothing.

    ValueError, which begins with `label`, for the first problem; True if values need a conversion, see
    `jaxrl.envs.conversion`. `env` has `spec`, `reset` and `step`.
    """
    refuse_first(label, _faults_of_spec(env))
    spec: EnvSpec = env.spec
    found = Types(label, env)
    timestep = found.timestep
    converts = found.converts_reset
    converts |= _check_obs(f"{label}: step()", spec.observation_space, timestep.obs, leading=_leading(spec))
    refuse_first(label, _faults_of_step(found, spec))
    if spec.central_observation is not None:
        converts |= _check_obs(f"{label}: central()", spec.central_observation, found.central)
    reward = timestep.reward
    weak = timestep.terminated.weak_type or timestep.truncated.weak_type or reward.weak_type
    return converts or weak or reward.dtype != jnp.float32


def check_info(label: str, env: JaxEnv, keys: Iterable[str]) -> None:
    """Raises ValueError unless `step` gives a number as `info[key]`, for each of the keys; runs nothing."""
    refuse_first(label, _faults_of_info(Types(label, env).timestep.info, keys))


def refuse_first(label: str, faults: Iterable[str]) -> None:
    """Raises ValueError if there is a fault; those after the first are not looked for."""
    for fault in faults:
        raise ValueError(f"{label}: {fault}")


def _faults_of_step(found: Types, spec: EnvSpec) -> Iterator[str]:
    yield from _faults_of_state(found.state, found.next_state)
    timestep = found.timestep
    reward = timestep.reward
    agents = _leading(spec)
    count = f"[{len(spec.agents)}]" if agents else "[]"
    if getattr(reward, "shape", None) != agents or not is_real(reward.dtype):
        text = "return one number of each agent" if agents else "return one number"
        yield f"step() returned the reward {_form(reward)}; {text}, float32{count}"
    for name in ("terminated", "truncated"):
        flag = getattr(timestep, name)
        if getattr(flag, "shape", None) != agents or flag.dtype != bool:
            text = "return bool" if agents else "return one bool"
            yield f"step() returned {name} as {_form(flag)}; {text}{count}"
    if not isinstance(timestep.info, dict):
        yield "step() returned no dict as info; leave it out, or give arrays by name"
    yield from _faults_of_info(timestep.info, [report.name for report in spec.reports])
    if spec.agents and _form(found.present) != f"bool{count}":
        rule = f"return bool{count}, True where an agent takes part in the next step"
        yield f"present() returned {_form(found.present)}; {rule}"
    mask = f"bool[{','.join(map(str, (*agents, spec.mask_size)))}]" if spec.has_action_mask else ""
    if spec.has_action_mask and _form(found.mask) != mask:
        yield f"action_mask() returned {_form(found.mask)}; return {mask}, True where an action is allowed"
    if found.solution is not None:
        wanted = jax.eval_shape(lambda: zeros(spec.action_space))
        if isinstance(wanted, dict) or _form(found.solution) != _form(wanted):
            yield f"solve() returned {_form(found.solution)}; return an action, {spec.action_space}"


def _faults_of_info(info: dict[str, Any], keys: Iterable[str]) -> Iterator[str]:
    for key in keys:
        if key not in info:
            names = names_of(info)
            given = f"its info has {', '.join(names)}" if names else "its info is empty"
            yield f"step() returned no info[{key!r}]; {given}"
        elif getattr(info[key], "shape", None) != () or not is_real(info[key].dtype):
            yield f"step() returned info[{key!r}] as {_form(info[key])}; return one number or bool"


class Types:
    """Shapes and dtypes of what the methods return, as `jax.ShapeDtypeStruct`; ValueError if one fails.

    What the environment does not declare is None: `present`, `central`, the `mask` of `action_mask`, the
    `solution` of `solve`. `state` is of `reset`, whose observation may need a conversion (`converts_reset`);
    `next_state` and `timestep` are of `step`. `arguments` are what both were called with.
    """

    def __init__(self, label: str, env: JaxEnv):
        key = jax.eval_shape(lambda: jax.random.key(0))
        space = env.spec.action_space
        tasks = env.spec.task_space
        task = () if tasks is None else (jax.eval_shape(lambda: zeros(tasks)),)
        where = f"{label}: reset()"
        self.state, obs = _trace(where, env.reset, _state_and_obs, key, *task)
        # Before `step` is traced: with another state it fails in many ways.
        leading = _leading(env.spec)
        self.converts_reset = _check_obs(where, env.spec.observation_space, obs, leading=leading)
        state = jax.eval_shape(strong_types, self.state)
        action = jax.eval_shape(lambda: zeros(space, leading))
        self.arguments = {"reset": (key, *task), "step": (key, state, action)}
        found = _trace(f"{label}: step()", env.step, _state_and_step, key, state, action)
        self.next_state, self.timestep = found
        if env.spec.has_solver and not hasattr(env, "solve"):
            raise ValueError(f"{label}: spec.has_solver is set, and there is no method solve(state)")

        def of_state(method: str, is_declared: bool) -> Any:
            where = f"{label}: {method}()"
            return _trace(where, getattr(env, method), lambda x: x, state) if is_declared else None

        self.present = of_state("present", bool(env.spec.agents))
        self.central = of_state("central", env.spec.central_observation is not None)
        self.mask = of_state("action_mask", env.spec.has_action_mask)
        self.solution = of_state("solve", env.spec.has_solver)


def _faults_of_spec(env: Any) -> Iterator[str]:
    spec = env.spec
    if not isinstance(spec, EnvSpec):
        yield f"spec is a {_kind(spec)}; make it a jaxrl.EnvSpec"
    for name in ("observation_space", "action_space", "task_space", "central_observation"):
        if name in ("observation_space", "action_space") or getattr(spec, name) is not None:
            yield from _faults_of_space(f"spec.{name}", getattr(spec, name))
    if isinstance(spec.action_space, Dict):
        try:
            Mixed(spec.action_space.spaces)  # type: ignore[arg-type]
        except ValueError as error:
            yield f"spec.action_space: {error}"
    if spec.agents and not hasattr(env, "present"):
        yield f"spec.agents is set, but it lacks present(state), bool[{len(spec.agents)}]"
    if spec.central_observation is not None and not (spec.agents and hasattr(env, "central")):
        what = "it lacks central(state)" if spec.agents else "spec.agents is empty"
        yield f"spec.central_observation is set, but {what}"
    if spec.agents and (spec.task_space is not None or isinstance(spec.action_space, Dict)):
        what = "actions of several spaces" if isinstance(spec.action_space, Dict) else "tasks"
        yield f"spec.agents is set; environments of several agents have no {what}"
    if spec.has_action_mask and not isinstance(spec.action_space, Discrete | MultiDiscrete):
        yield "spec.has_action_mask is set; only Discrete and MultiDiscrete actions can have a mask"
    if spec.task_space is None:
        return
    if not takes_task(env):
        yield "reset() takes no task, but spec.task_space is set; write reset(self, key, task)"
    if not hasattr(env, "default_task"):
        yield "it lacks default_task, the default element of spec.task_space"
    yield from _faults_of_element("default_task", spec.task_space, default_task(env))


def _faults_of_space(where: str, space: Space) -> Iterator[str]:
    if isinstance(space, Dict):
        for key, part in space.spaces:
            yield from _faults_of_space(f"{where}[{key!r}]", part)
        return
    if not isinstance(space, Discrete | MultiDiscrete | Box | Mixed):
        makes = "Box.of(low, high, shape), Discrete(n), MultiDiscrete((n, ...)) or Dict(((name, space), ...))"
        yield f"{where} is a {_kind(space)}; use those of jaxrl: {makes}"
    dtype = np.dtype(space.dtype)
    held = jax.dtypes.canonicalize_dtype(dtype)
    if dtype != held:
        yield f"{where} has the dtype {dtype}; arrays of JAX have 32 bits: use {held}"


def _faults_of_element(where: str, space: Space, x: Any) -> Iterator[str]:
    """Arrays are elements of a space, Python numbers are not."""
    if isinstance(space, Dict):
        keys = [key for key, _ in space.spaces]
        if not isinstance(x, dict) or sorted(x) != sorted(keys):
            yield f"{where} must be a dict with the keys {', '.join(keys)} of its space"
        for key, part in space.spaces:
            yield from _faults_of_element(f"{where}[{key!r}]", part, x[key])
        return
    assert not isinstance(space, Mixed)  # Tasks and observations are dicts.
    if getattr(x, "shape", None) != space.shape or x.dtype != np.dtype(space.dtype):
        declared = _form(jax.ShapeDtypeStruct(space.shape, np.dtype(space.dtype)))
        yield f"{where} is {_form(x)}, its space has {declared}; make them equal"
    low, high = bounds(space)
    if not ((np.asarray(x) >= low) & (np.asarray(x) <= high)).all():
        yield f"{where} (={np.asarray(x).tolist()}) does not lie within the bounds of its space"


def _leading(spec: EnvSpec) -> tuple[int, ...]:
    """The leading dimensions of what belongs to an agent: (A,) of several agents, else none."""
    return (len(spec.agents),) if spec.agents else ()


def _check_obs(where: str, space: Space, obs: Any, part: str = "", leading: tuple[int, ...] = ()) -> bool:
    """True if the observation needs a conversion to be of the space; ValueError if it cannot be converted."""
    what = f"an observation{part}"
    if isinstance(space, Dict):
        keys = [key for key, _ in space.spaces]
        if not isinstance(obs, dict) or sorted(obs) != sorted(keys):
            found = f"the keys {', '.join(sorted(obs))}" if isinstance(obs, dict) else _form(obs)
            raise ValueError(f"{where} returned {what} of {found}; its space has the keys {', '.join(keys)}")
        converts = [_check_obs(where, inner, obs[key], f"[{key!r}]", leading) for key, inner in space.spaces]
        return any(converts)
    dtype = np.dtype(space.dtype)
    shape = (*leading, *space.shape)
    found = f"{what} of {_form(obs)}, its space has {_form(jax.ShapeDtypeStruct(shape, dtype))}"
    if getattr(obs, "shape", None) != shape:
        raise ValueError(f"{where} returned {found}; make them equal")
    if obs.dtype == dtype and not obs.weak_type:
        return False
    same_kind = np.can_cast(obs.dtype, dtype, "same_kind") if obs.weak_type else False
    if not same_kind and not np.can_cast(obs.dtype, dtype, "safe"):
        remedy = f"convert it by .astype(jnp.{dtype}), or declare the space so"
        raise ValueError(f"{where} returned {found}; {remedy}")
    return True


def _faults_of_state(before: Any, after: Any) -> Iterator[str]:
    ours, theirs = (jax.tree.leaves_with_path(tree) for tree in (before, after))
    if [path for path, _ in ours] != [path for path, _ in theirs]:
        yield "step() returned a state of another structure than reset(); make them equal"
    for (path, old), (_, new) in zip(ours, theirs, strict=True):
        if old.shape != new.shape or old.dtype != new.dtype:
            name = f"state{jax.tree_util.keystr(path)}"
            yield f"step() returned {name} as {_form(new)}, reset() as {_form(old)}; make them equal"


def _state_and_obs(result: Any, form: str = "return (state, obs)") -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise _Wrong(f"returned {_kind(result)}; {form}")
    _require_arrays("state", result[0])
    return result


def _state_and_step(result: Any) -> tuple[Any, TimeStep]:
    state, timestep = _state_and_obs(result, _STEP)
    if not isinstance(timestep, TimeStep):
        raise _Wrong(f"returned a state and {_kind(timestep)}; {_STEP}")
    _require_arrays("info", timestep.info)
    return state, timestep


def _require_arrays(name: str, tree: Any) -> None:
    """Raises unless a program can hold each leaf: text, for one, is no array."""
    for path, x in jax.tree.leaves_with_path(tree):
        if not hasattr(x, "dtype") and not isinstance(x, bool | int | float | complex):
            where = f"{name}{jax.tree_util.keystr(path)}"
            raise _Wrong(f"returned {where} as a {_kind(x)}; keep arrays and numbers, and the rest in `self`")


class _Wrong(ValueError):
    """A mistake of a method, and the remedy."""


def _trace(where: str, function: Callable[..., Any], check: Callable[[Any], Any], *arguments: Any) -> Any:
    try:
        return jax.eval_shape(lambda *args: check(function(*args)), *arguments)
    except Exception as error:
        raise ValueError(f"{where} {explain(error)}") from error


def explain(error: Exception) -> str:
    if isinstance(error, _Wrong):
        return str(error)
    if isinstance(error, jax.errors.UnexpectedTracerError):
        return KEEPS_ARRAYS
    if isinstance(error, jax.errors.ConcretizationTypeError | jax.errors.TracerArrayConversionError):
        line = re.search(r"\(([^()]*\.py, line \d+.*)\)$", modules.one_line(error))
        return f"{_BY_VALUE}{f' ({line.group(1)})' if line else ''}"
    text = modules.one_line(error)
    return f"raised {text if len(text) <= _LONGEST_TEXT else f'{text[:_LONGEST_TEXT]}...'}"


def is_real(dtype: Any) -> bool:
    """True of bools, integers and floats."""
    return any(jnp.issubdtype(dtype, kind) for kind in (jnp.bool_, jnp.integer, jnp.floating))


def _form(x: Any) -> str:
    """`float32[4]`."""
    if not hasattr(x, "shape"):
        return f"a {_kind(x)}"
    return f"{x.dtype}[{','.join(map(str, x.shape))}]"


def _kind(x: Any) -> str:
    if isinstance(x, tuple):
        return f"{len(x)} values"
    if isinstance(x, jax.Array):
        return _form(x)
    return f"{type(x).__module__}.{type(x).__name__}".removeprefix("builtins.")
