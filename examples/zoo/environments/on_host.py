"""Environments on the host, several in parallel, with a common interface: `make("bsuite:catch/0", seed=0, count=1)`.

Each call of `step` steps all of them, and returns an `Outcome`. When an episode ends, the next one begins in the same
step, so that no step is lost; `next_observation` is never from another episode.
"""

import importlib
import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import dm_env
import jax
import numpy as np
import tree
from dm_env import specs

from .environment import Environment, UnknownEnvironment, auto_reset


class Outcome(NamedTuple):
    """The outcome of a step in each of E environments."""

    reward: np.ndarray  # float32 [E]
    discount: np.ndarray  # float32 [E], 0 where the episode terminated
    last: np.ndarray  # bool [E], whether the episode ended: terminated or truncated
    next_observation: Any  # [E, ...], after the action
    observation: Any  # [E, ...], before the next action: of the new episode where one has ended


class Environments(NamedTuple):
    """Several environments of one kind."""

    observation_spec: Any
    action_spec: Any
    reset: Callable[[], Any]  # () -> observations [E, ...]; the same each time, if the environments can be seeded
    step: Callable[[Any], Outcome]  # (actions [E, ...]) -> Outcome
    count: int
    episodes: int | None = None  # the number of episodes in an experiment, if defined
    close: Callable[[], None] = lambda: None


def stacked(observations: Sequence[Any]) -> Any:
    if isinstance(observations[0], np.ndarray):
        return np.array(observations)  # faster than np.stack for few environments
    return tree.map_structure(lambda *leaves: np.stack(leaves), *observations)


def replaced(arrays: Any, at: np.ndarray, rows: Any) -> Any:
    """Copies of the arrays [E, ...], with the rows at these indices replaced."""

    def put(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x = x.copy()
        x[at] = y
        return x

    return tree.map_structure(put, arrays, rows)


def apart(actions: Any, count: int, spec: Any) -> Sequence[Any]:
    """Actions [E, ...] as a sequence of single actions."""
    if isinstance(spec, specs.DiscreteArray):
        return actions.tolist()
    return [tree.map_structure(lambda x, i=i: x[i], actions) for i in range(count)]


def of_dm_env(environments: Sequence[dm_env.Environment], episodes: int | None = None) -> Environments:
    """Environments with dm_env's interface, stepped one after the other."""
    action_spec = environments[0].action_spec()

    def reset() -> Any:
        return stacked([environment.reset().observation for environment in environments])

    def step(actions: Any) -> Outcome:
        each = zip(environments, apart(actions, len(environments), action_spec), strict=True)
        timesteps = [environment.step(action) for environment, action in each]
        last = [timestep.last() for timestep in timesteps]
        observations = [timestep.observation for timestep in timesteps]
        seen = stacked(observations)
        for i in itertools.compress(range(len(last)), last):
            observations[i] = environments[i].reset().observation
        return Outcome(
            np.array([timestep.reward for timestep in timesteps], np.float32),
            np.array([timestep.discount for timestep in timesteps], np.float32),
            np.array(last),
            seen,
            stacked(observations) if any(last) else seen,
        )

    return Environments(environments[0].observation_spec(), action_spec, reset, step, len(environments), episodes)


def of_pure(environment: Environment, seed: int, count: int) -> Environments:
    """Environments in JAX, on the CPU. A step of all of them is one compiled call, which releases the GIL."""
    running_on = auto_reset(environment)
    key = jax.device_put(jax.random.key(seed), jax.local_devices(backend="cpu")[0])

    @jax.jit
    def begin(key: jax.Array, t: jax.Array) -> tuple[jax.Array, Any]:
        keys = jax.random.split(jax.random.fold_in(key, t), count)
        return t + 1, jax.vmap(running_on.reset)(keys)[0]

    @jax.jit
    def go_on(key: jax.Array, t: jax.Array, running: Any, actions: Any) -> tuple[jax.Array, Any, Outcome]:
        keys = jax.random.split(jax.random.fold_in(key, t), count)
        running, timestep = jax.vmap(running_on.step)(keys, running, actions)
        came = timestep.reward, timestep.discount, timestep.last(), timestep.observation
        return t + 1, running, Outcome(*came, running.observation)

    t, running = np.int32(0), None

    def reset() -> Any:
        nonlocal t, running
        t, running = begin(key, np.int32(0))
        return jax.tree.map(np.asarray, running.observation)

    def step(actions: Any) -> Outcome:
        nonlocal t, running
        t, running, outcome = go_on(key, t, running, actions)
        return jax.tree.map(np.asarray, outcome)

    return Environments(environment.observation_spec(), environment.action_spec(), reset, step, count)


def spec_of(space: Any) -> Any:
    """Converts a Gymnasium space to a dm_env spec, or a tree of specs."""
    gymnasium = library("gymnasium")
    if isinstance(space, gymnasium.spaces.Dict):
        return {name: spec_of(part) for name, part in space.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(spec_of(part) for part in space)
    if isinstance(space, gymnasium.spaces.Discrete):
        if space.start != 0:  # a dm_env.specs.DiscreteArray counts from 0
            return specs.BoundedArray((), space.dtype, space.start, space.start + space.n - 1)
        return specs.DiscreteArray(int(space.n))
    if isinstance(space, gymnasium.spaces.Box):
        return specs.BoundedArray(space.shape, space.dtype, space.low, space.high)
    if isinstance(space, gymnasium.spaces.MultiBinary | gymnasium.spaces.MultiDiscrete):
        return specs.Array(space.shape, space.dtype)
    raise UnknownEnvironment(f"there is no spec for the space {space}")


def specs_of(observation_space: Any, action_space: Any) -> tuple[Any, Any]:
    """The specs of observations and of actions, of which an agent counts discrete ones from 0."""
    start = getattr(action_space, "start", 0)
    if np.any(start):
        raise UnknownEnvironment(f"actions are counted from {start}, but must be counted from 0")
    return spec_of(observation_space), spec_of(action_space)


def of_gymnasium(make: Callable[[], Any], seed: int, count: int) -> Environments:
    """Environments of Gymnasium, stepped by its vector environment. Truncated episodes keep their discount of 1."""
    gymnasium = library("gymnasium")
    same_step = gymnasium.vector.AutoresetMode.SAME_STEP
    try:
        vector = gymnasium.vector.SyncVectorEnv([make] * count, autoreset_mode=same_step, copy=True)
    except (gymnasium.error.Error, ImportError) as error:  # unknown name, or a library that it needs is missing
        raise UnknownEnvironment(str(error).splitlines()[0]) from None

    def reset() -> Any:
        return vector.reset(seed=[seed + i for i in range(count)])[0]

    def step(actions: Any) -> Outcome:
        observation, reward, terminated, truncated, info = vector.step(actions)
        last, seen = terminated | truncated, observation
        if last.any():
            at = np.flatnonzero(last)
            seen = replaced(observation, at, stacked([info["final_obs"][i] for i in at]))
        return Outcome(np.float32(reward), np.float32(1) - np.float32(terminated), last, seen, observation)

    spaces = vector.single_observation_space, vector.single_action_space
    return Environments(*specs_of(*spaces), reset, step, count, close=vector.close)


def from_envpool(identity: str, seed: int, count: int) -> Environments:
    """Environments of EnvPool, stepped by its C++ threads. Truncated episodes keep their discount of 1."""
    envpool = library("envpool")
    if identity not in envpool.list_all_envs():
        raise UnknownEnvironment(f"EnvPool has no environment {identity!r}")

    def made() -> tuple[Any, Any, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the bounds are more precise than the dtype
            pool = envpool.make_gymnasium(identity, num_envs=count, seed=seed)
            return pool, pool.single_observation_space, pool.single_action_space

    pool, *spaces = made()

    def reset() -> Any:
        nonlocal pool
        pool.close()
        pool, *_ = made()  # only the constructor takes a seed
        return pool.reset()[0]

    def step(actions: Any) -> Outcome:
        seen, reward, terminated, truncated, _ = pool.step(actions)
        last, observation = terminated | truncated, seen
        if last.any():
            at = np.flatnonzero(last).astype(np.int32)
            observation = replaced(seen, at, pool.reset(at)[0])
        return Outcome(np.float32(reward), np.float32(1) - np.float32(terminated), last, seen, observation)

    return Environments(*specs_of(*spaces), reset, step, count, close=lambda: pool.close())


def make(name: str, seed: int = 0, count: int = 1, record: str = "") -> Environments:
    """Environments by name: `bsuite:ID`, `gymnasium:ID`, `envpool:ID`, `ale:GAME`, or a name for `environments.make`.

    `record` is a folder for bsuite's log of episodes. Raises UnknownEnvironment, with a message of one line, if there
    is no environment of that name.
    """
    kind, _, rest = name.partition(":")
    if kind == "bsuite":
        return from_bsuite(rest, count, record)
    if kind == "gymnasium":
        return of_gymnasium(lambda: library("gymnasium").make(rest), seed, count)
    if kind == "envpool":
        return from_envpool(rest, seed, count)
    if kind == "ale":
        return of_gymnasium(lambda: atari(rest), seed, count)
    from . import NAMES
    from . import make as make_pure

    if kind != "gymnax" and name.partition(",")[0] not in NAMES:
        known = f"{', '.join(NAMES)}, gymnax:NAME, bsuite:ID, gymnasium:ID, envpool:ID and ale:GAME"
        raise UnknownEnvironment(f"there is no environment {name!r}; there are {known}")
    return of_pure(make_pure(name), seed, count)


def library(name: str) -> Any:
    """Imports an optional library."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UnknownEnvironment(f"it needs {name}, which is not installed: pip install {name}") from None


def from_bsuite(identity: str, count: int, record: str) -> Environments:
    bsuite = library("bsuite")
    if identity not in library("bsuite.sweep").SWEEP:
        raise UnknownEnvironment(f"bsuite has no experiment {identity!r}; they are NAME/NUMBER, as catch/0")
    if record and count > 1:
        raise UnknownEnvironment("bsuite's log is of one environment: give --environments 1")
    if record:
        environments = [bsuite.load_and_record_to_csv(identity, record, overwrite=True)]
    else:
        environments = [bsuite.load_from_id(identity) for _ in range(count)]
    return of_dm_env(environments, episodes=environments[0].bsuite_num_episodes)


def atari(game: str) -> Any:
    """A game of the Arcade Learning Environment with the usual preprocessing: 84 x 84, grey, four frames."""
    gymnasium = library("gymnasium")
    gymnasium.register_envs(library("ale_py"))
    game = gymnasium.make(f"ALE/{game}-v5", frameskip=1)
    return gymnasium.wrappers.FrameStackObservation(gymnasium.wrappers.AtariPreprocessing(game), 4)
