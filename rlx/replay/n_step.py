"""n-step transitions, built from the steps of many environments and added to another replay."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlx.core.annotations import Real
from rlx.core.arguments import as_arrays, require, whole
from rlx.core.types import Array, ArrayLike, PyTree, in_one_dtype, wide_dtype
from rlx.replay.contract import Replay, Sample, as_items, environments_of, replay_of
from rlx.replay.slots import empty_slots, length_of


class Transition(NamedTuple):
    """A transition from a state and action to a later state: the input and the output of `rlx.replay.n_step`.

    `s_tm1`, `a_tm1` and `s_t` are any trees of arrays. Anything else known at the first state, such as the probability
    of the action, goes into `s_tm1`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> step = rlx.replay.Transition(
      ...     s_tm1=jnp.zeros([2, 4]), a_tm1=jnp.array([0, 1]), r_t=jnp.ones(2), discount_t=jnp.full(2, 0.99),
      ...     s_t=jnp.ones([2, 4]))
      >>> step.discount_t.shape
      (2,)
    """

    s_tm1: PyTree
    a_tm1: PyTree
    r_t: Any
    discount_t: Any  # 0 where s_t ends an episode
    s_t: PyTree  # in the same episode: not the first observation after an automatic reset
    truncation_t: Any = None  # true where an episode ends at s_t though the discount is not 0, as at a time limit


class NStepState(NamedTuple):
    """The last n-1 steps, how many there are so far, and the state of the replay of transitions."""

    steps: Transition  # each leaf [n-1, E, ...]
    size: Array  # int32 []
    replay: Any


def n_step(replay: Replay, n: int) -> Replay:
    """A replay that builds n-step transitions from single steps, and adds them to another replay.

    For the transition from s_{t-1} to s_{t+n-1}, the reward is r_t + γ_t r_{t+1} + ... + γ_t ... γ_{t+n-2} r_{t+n-1}
    and the discount is γ_t ... γ_{t+n-1}. If the episode ends earlier, at a discount of 0 or a `truncation_t`, the
    transition ends there too; later steps have no influence. Each step starts one transition, which is added n-1 steps
    later. These are the n-step returns of "Learning from delayed rewards", Watkins 1989, as in "Rainbow: Combining
    Improvements in Deep Reinforcement Learning", Hessel et al. 2018 (https://arxiv.org/abs/1710.02298).

    An item is a `Transition` of one step of all E environments: each leaf has E as its first axis. `add_batch` takes
    several of them, [T, E, ...], as stacked by `jax.lax.scan`, and takes no mask. Everything else behaves as in
    `replay`, whose items are transitions without `truncation_t`, of one environment each.

    Args:
      replay: `rlx.replay.uniform(...)`, `prioritised(...)` or `reservoir(...)`, which holds the transitions.
      n: the number of steps, a positive Python integer.

    Returns:
      A `Replay`, which documents its functions; `init` takes the same further arguments as that of `replay`.

    Raises:
      OptionError: if `n` is not a positive whole number, or `replay` is not a `Replay`.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> replay = rlx.replay.n_step(rlx.replay.uniform(capacity=100), n=3)
      >>> def step(t, discount):  # of two environments
      ...     s_tm1 = jnp.array([t, 10.0 + t])
      ...     return rlx.replay.Transition(s_tm1, jnp.zeros(2, int), jnp.ones(2), jnp.array([0.5, discount]), s_tm1 + 1)
      >>> state = replay.init(step(0.0, 0.5))
      >>> for t, discount in enumerate([0.5, 0.0, 0.5]):  # the second environment ends its episode in step 1
      ...     state = replay.add(state, step(t, discount))
      >>> items = replay.sample(state, jax.random.key(0), n=20).items
      >>> rows = zip(items.s_tm1.tolist(), items.r_t.tolist(), items.discount_t.tolist(), items.s_t.tolist())
      >>> sorted(set(rows))
      [(0.0, 1.75, 0.125, 3.0), (10.0, 1.5, 0.0, 12.0)]
    """
    name = "replay.n_step"
    expected = "a Replay, for instance rlx.replay.uniform(capacity)"
    require(isinstance(replay, Replay), "replay", replay, expected, name)
    n = whole("n", n, "a positive number of steps", name, 1)
    # Partial applications of module-level functions can be pickled; local functions could not.
    functions = functools.partial(_init, n), _add, _add_batch, _sample, _can_sample, _update_priorities
    return replay_of(NStepState, *(functools.partial(function, replay) for function in functions))


def _init(n: int, replay: Replay, item: Transition, *more: Any) -> NStepState:
    require(isinstance(item, Transition), "item", item, "an rlx.replay.Transition", "replay.init")
    environments_of(item)
    rows = ("r_t", "discount_t") if item.truncation_t is None else ("r_t", "discount_t", "truncation_t")
    given = {row: getattr(item, row) for row in rows}  # may be stand-ins for arrays
    zeros = {row: None if x is None else jnp.zeros_like(x) for row, x in given.items()}
    as_arrays("replay.init", **{f"item.{row}": (x, Real[Array, "E"]) for row, x in zeros.items()})
    joined = jax.eval_shape(lambda: _join(empty_slots(n, item), n))
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), joined)
    return NStepState(empty_slots(n - 1, item), jnp.zeros([], jnp.int32), replay.init(one, *more))


def _add(replay: Replay, state: NStepState, item: Transition) -> NStepState:
    items = as_items("replay.add", "item", item, state.steps, ())
    return _push(replay, state, jax.tree.map(lambda x: x[None], items))


def _add_batch(replay: Replay, state: NStepState, items: Transition) -> NStepState:
    return _push(replay, state, as_items("replay.add_batch", "items", items, state.steps, ("T",)))


def _push(replay: Replay, state: NStepState, items: Transition) -> NStepState:
    number, environments = items.r_t.shape
    before = length_of(state.steps)
    steps = jax.tree.map(lambda old, new: jnp.concatenate([old, new]), state.steps, items)
    transitions = jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), _join(steps, before + 1))
    begun = jnp.arange(number, dtype=jnp.int32) >= before - state.size  # the others would begin before the first step
    held = replay.add_batch(state.replay, transitions, jnp.repeat(begun, environments))
    return NStepState(jax.tree.map(lambda x: x[number:], steps), jnp.minimum(state.size + number, before), held)


def _join(steps: Transition, n: int) -> Transition:
    """Joins steps [T+n-1, E, ...] to T n-step transitions, [T, E, ...]."""
    number, environments = steps.r_t.shape[0] - n + 1, steps.r_t.shape[1]
    alike = in_one_dtype(steps.r_t, steps.discount_t)
    dtype = next((x.dtype for x in alike if jnp.issubdtype(x.dtype, jnp.floating)), jnp.result_type(float))
    r_t, discount_t = (x.astype(wide_dtype(dtype)) for x in alike)  # a part of a sum may overflow half precision
    ends_t = discount_t == 0
    if steps.truncation_t is not None:
        ends_t = ends_t | steps.truncation_t.astype(bool)
    rewards, discounts = r_t[n - 1 :], discount_t[n - 1 :]
    last = jnp.full([number, environments], n - 1, jnp.int32)
    for k in reversed(range(n - 1)):
        r, discount, ends = (x[k : k + number] for x in (r_t, discount_t, ends_t))
        rewards = r + jnp.where(ends, 0, discount * rewards)
        discounts = jnp.where(ends, discount, discount * discounts)
        last = jnp.where(ends, k, last)
    rows, columns = jnp.arange(number, dtype=jnp.int32)[:, None] + last, jnp.arange(environments, dtype=jnp.int32)[None]
    s_t = jax.tree.map(lambda x: x[rows, columns], steps.s_t)
    s_tm1, a_tm1 = jax.tree.map(lambda x: x[:number], (steps.s_tm1, steps.a_tm1))
    return Transition(s_tm1, a_tm1, rewards.astype(dtype), discounts.astype(dtype), s_t)


def _sample(replay: Replay, state: NStepState, key: Array, n: int) -> Sample:
    return replay.sample(state.replay, key, n)


def _can_sample(replay: Replay, state: NStepState, n: int = 1) -> Array:
    return replay.can_sample(state.replay, n)


def _update_priorities(replay: Replay, state: NStepState, indices: ArrayLike, priorities: ArrayLike) -> NStepState:
    return state._replace(replay=replay.update_priorities(state.replay, indices, priorities))
