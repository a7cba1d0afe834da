"""Memory chain: the first observation shows the context; much later, the agent has to recall one of its bits.

The reward is +1 if the last action is the right bit, and -1 otherwise; earlier actions have no effect. The observation
is the share of the time that is left, the index of the requested bit (only in the last one before the answer), and the
context as -1 and +1 (only in the first observation). bsuite's `memory_len` and `memory_size` (Osband et al., "Behaviour
Suite for Reinforcement Learning", 2020), where a step shows the state before it, so that the first observation comes
twice.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import TimeStep, specs

from .environment import Key, after, first, one_of, words


class Settings(NamedTuple):
    memory_length: int = 5
    num_bits: int = 1


DEFAULT = Settings()


class State(NamedTuple):
    steps: jax.Array  # [], since the episode began
    context: jax.Array  # [num_bits], 0 or 1
    query: jax.Array  # [], the index of the requested bit


def reset(key: Key, *, settings: Settings = DEFAULT) -> tuple[State, TimeStep]:
    query, *drawn = words(key, 1 + -(-settings.num_bits // 32))
    bits = jnp.concatenate([(word >> jnp.arange(32, dtype=jnp.uint32)) & 1 for word in drawn])
    context = bits[: settings.num_bits].astype(jnp.int32)
    state = State(jnp.int32(0), context, one_of(query, settings.num_bits))
    return state, first(observe(state, settings))


def step(key: Key, state: State, action: jax.Array, *, settings: Settings = DEFAULT) -> tuple[State, TimeStep]:
    del key  # nothing is random after the first timestep
    answer = state.steps == settings.memory_length
    reward = jnp.where(answer, jnp.where(action == state.context[state.query], 1.0, -1.0), 0.0)
    return state._replace(steps=state.steps + 1), after(reward, observe(state, settings), terminated=answer)


def observe(state: State, settings: Settings) -> jax.Array:
    left = 1 - state.steps / settings.memory_length
    query = jnp.where(state.steps == settings.memory_length - 1, state.query, 0)
    context = jnp.where(state.steps == 0, 2 * state.context - 1, 0)
    return jnp.concatenate([left[None], query[None], context])[None]


def observation_spec(*, settings: Settings = DEFAULT) -> specs.Array:
    return specs.Array([1, settings.num_bits + 2], np.float32, "time_query_context")


def action_spec(*, settings: Settings = DEFAULT) -> specs.DiscreteArray:
    del settings
    return specs.DiscreteArray(2, name="bit")
