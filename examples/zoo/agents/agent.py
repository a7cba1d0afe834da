"""The interface of agents: pure functions of a state, which know nothing of environments, files or flags.

    agent = dqn.make(dqn.Config(), environment.observation_spec(), environment.action_spec())
    state, memory = agent.init(key, environments=1), agent.memory(1)
    choice = agent.act(state, memory, observations, key)       # for observations [E, ...] of E environments
    state, metrics = agent.learn(state, steps)                 # from a `Step` with axes [T, E, ...], T = agent.unroll

`act` chooses an action for one observation of each environment; `learn` takes the last `unroll` steps of all of them,
in order and each once. The caller decides how to run the two: `run.py` calls them from Python for environments on the
host, and in one compiled program for environments in JAX.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

import hkx
import rlx


class Step(NamedTuple):
    """A step in each of E environments, with leaves [E, ...], or several steps, with leaves [T, E, ...]."""

    observation: Any  # before the action
    action: Any
    reward: Any  # float32
    discount: Any  # float32, 0 where the episode terminated
    last: Any  # bool, whether the episode ended with this step: terminated or truncated
    next_observation: Any  # after the action, in the same episode
    extras: Any  # passed from `act` to `learn`


class Choice(NamedTuple):
    """The result of `act`."""

    action: Any  # [E, ...]
    memory: Any  # for the next call
    extras: Any = ()  # for `learn`


class Agent(NamedTuple):
    """An agent. All four functions are pure and can be compiled."""

    init: Callable[..., Any]  # (key, environments) -> state
    act: Callable[..., Choice]  # (state, memory, observations, key, greedy=False), greedy a Python bool
    learn: Callable[..., tuple[Any, dict[str, jax.Array]]]  # (state, steps) -> (state, metrics)
    memory: Callable[[int], Any] = lambda environments: ()  # the memory of `act` at the beginning of an episode
    unroll: int = 1  # the number of steps that `learn` takes


def reset_where(last: jax.Array, memory: Any, first: Any) -> Any:
    """The memory [E, ...] for the next observation, which is `first` where an episode has ended."""
    return jax.tree.map(lambda a, b: jnp.where(last.reshape(-1, *[1] * (a.ndim - 1)), a, b), first, memory)


def is_spec(x: Any) -> bool:
    return isinstance(x, specs.Array)


def blank(spec: Any) -> Any:
    """An observation or action (or a tree of them) of zeros, by its specs, in dtypes that JAX supports."""
    return jax.tree.map(lambda x: np.zeros(x.shape, jax.dtypes.canonicalize_dtype(x.dtype)), spec, is_leaf=is_spec)


def no_transition(observation: Any, action: Any, environments: int) -> rlx.replay.Transition:
    """A step of zeros in each environment, from which a replay buffer is initialised."""
    zeros = jnp.zeros(environments)
    seen, done = jax.tree.map(lambda x: jnp.zeros((environments, *x.shape), x.dtype), (observation, action))
    return rlx.replay.Transition(seen, done, zeros, zeros, seen, zeros.astype(bool))


def transitions(steps: Step, discount: float) -> rlx.replay.Transition:
    """Converts steps [T, E, ...] to transitions for a replay buffer, in which truncations are marked."""
    truncated = steps.last & (steps.discount > 0)
    discounts = discount * steps.discount
    return rlx.replay.Transition(
        steps.observation, steps.action, steps.reward, discounts, steps.next_observation, truncated
    )


def require_room(warmup: int, most: int) -> None:
    """Raises an error if a replay, which holds at most this many sequences, never holds `warmup` of them."""
    if warmup > most:
        raise ValueError(f"warmup: the replay never holds {warmup} sequences, but at most {most}; give more capacity")


def number_of_actions(spec: Any) -> int:
    """The number of actions, for an agent with discrete actions."""
    if not isinstance(spec, specs.DiscreteArray):
        raise ValueError(f"this agent needs discrete actions, got {spec}")
    return int(spec.num_values)


def bounds(spec: Any) -> tuple[np.ndarray, np.ndarray]:
    """The lower and upper bounds of actions, for an agent with continuous actions."""
    if np.issubdtype(spec.dtype, np.floating):
        dtype = jax.dtypes.canonicalize_dtype(spec.dtype)
        ends = getattr(spec, "minimum", -np.inf), getattr(spec, "maximum", np.inf)
        low, high = (np.broadcast_to(np.asarray(end, dtype), spec.shape) for end in ends)
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(high - low).all():
                return low, high
    raise ValueError(f"this agent needs bounded continuous actions, got {spec}")


class UnitActions(NamedTuple):
    """Conversion of bounded continuous actions, or trees of them, to and from vectors within [-1, 1]."""

    size: int
    to_spec: Callable[[Any], Any]  # [E, size] -> [E, ...], within the bounds
    from_spec: Callable[[Any], jax.Array]  # [T, E, ...] -> [T, E, size]


def unit_actions(spec: Any) -> UnitActions:
    leaves, structure = jax.tree.flatten(spec, is_leaf=is_spec)
    limits = [bounds(leaf) for leaf in leaves]
    ends = np.cumsum([low.size for low, _ in limits])

    def to_spec(action: jax.Array) -> Any:
        parts = zip(jnp.split(action, ends[:-1]), limits, strict=True)
        shares = ((low, high, (x.reshape(low.shape) + 1) / 2) for x, (low, high) in parts)
        # Rounding may exceed the upper bound.
        scaled = [jnp.clip(low + (high - low) * share, low, high).astype(low.dtype) for low, high, share in shares]
        return jax.tree.unflatten(structure, scaled)

    def from_spec(action: Any) -> jax.Array:
        parts = zip(jax.tree.leaves(action), limits, strict=True)
        # Where the bounds are equal, there is no choice, and any constant will do.
        return flat([2 * (x - low) / np.where(high > low, high - low, 1) - 1 for x, (low, high) in parts])

    return UnitActions(int(ends[-1]), jax.vmap(to_spec), jax.vmap(jax.vmap(from_spec)))


def flat(observation: Any) -> jax.Array:
    """All numbers in an observation of any structure, as a vector; uint8 values are scaled to [0, 1]."""
    parts = [x / np.float32(255) if x.dtype == np.uint8 else x for x in jax.tree.leaves(observation)]
    return jnp.concatenate([jnp.ravel(x).astype(jnp.float32) for x in parts])


def features(observation: Any) -> jax.Array:
    """Like `flat`, but uint8 images [channels, height, width] pass through the convolutions of Mnih et al. 2015,
    "Human-level control through deep reinforcement learning". For use inside a network."""

    def seen(image: jax.Array) -> jax.Array:
        hidden = jnp.moveaxis(image, 0, -1) / np.float32(255)
        for channels, shape, stride in (32, 8, 4), (64, 4, 2), (64, 3, 1):
            hidden = jax.nn.relu(hkx.Conv2D(channels, shape, stride, padding="VALID")(hidden))
        return hidden

    def is_image(x: Any) -> bool:
        return x.ndim == 3 and x.dtype == np.uint8

    return flat(jax.tree.map(lambda x: seen(x) if is_image(x) else x, observation))
