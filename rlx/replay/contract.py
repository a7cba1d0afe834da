"""The interface of every replay, a tuple of functions, and the requirements on its items."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlx.core.annotations import Int, Real
from rlx.core.arguments import advice_for_a_dict, as_arrays, known, shown
from rlx.core.errors import ArgumentError, DTypeError, OptionError, RankError, ShapeError
from rlx.core.types import Array, ArrayLike, PyTree, to_jax


class Replay(NamedTuple):
    """A replay: six pure functions, as returned by `rlx.replay.uniform` and the other constructors.

    The state is a tree of arrays to be read only by these functions. They work under `jax.jit`, `jax.vmap` (over
    replays) and `jax.lax.scan`. A compiled function to which the state is donated (`jax.jit(..., donate_argnums=...)`),
    and the body of a compiled loop, update it in place; elsewhere, each `add` copies the whole state.

    - `init(item)`: the state of an empty replay. `item` is any tree of arrays, or of `jax.ShapeDtypeStruct`, and gives
      the structure, shapes and dtypes of all items; its values are not stored.
    - `add(state, item)`: the state with one more item, which replaces the oldest once the replay is full.
    - `add_batch(state, items, mask=None)`: the same for a batch of items, stacked along a new first axis of each leaf
      and added in that order. A boolean mask [B] selects the items to add.
    - `sample(state, key, n)`: n items, drawn with replacement, as a `Sample`. n is a Python integer. It cannot raise an
      error when there is nothing to draw: it then returns the contents of the first slot, with weights of 0.
    - `can_sample(state, n=1)`: boolean [], whether the replay holds n items, at least one of which can be drawn.
    - `update_priorities(state, indices, priorities)`: the state with new priorities for the items at the given indices
      of a `Sample`, [B] each. It has no effect on a replay without priorities, and ignores indices that hold no item.

    To avoid copies by XLA in a compiled program, add before you sample in each step, and do not return the state from a
    `jax.lax.cond`, which `jax.vmap` turns into a select between two whole states. Its branches may read the state and
    return indices, -1 where nothing was learnt, for a later `update_priorities`; the second example does so.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> replay = rlx.replay.uniform(capacity=4)
      >>> state = replay.init({"r_t": 0.0})
      >>> state = replay.add(state, {"r_t": 1.0})
      >>> state = replay.add_batch(state, {"r_t": jnp.array([2.0, 3.0])})
      >>> bool(replay.can_sample(state, 3)), bool(replay.can_sample(state, 4))
      (True, False)
      >>> replay.sample(state, jax.random.key(0), n=2).items["r_t"].shape
      (2,)

      >>> replay = rlx.replay.prioritised(capacity=1000, exponent=0.6, beta=0.4)
      >>> def step(carry, key):  # learns the mean reward once there are 64
      ...     state, mean = carry
      ...     state = replay.add_batch(state, {"r_t": 3 + jax.random.normal(key, [8])})
      ...     def learn(mean):
      ...         items, indices, weights = replay.sample(state, key, n=32)
      ...         td_error = items["r_t"] - mean
      ...         return mean + 0.1 * jnp.mean(weights * td_error), indices, jnp.abs(td_error)
      ...     def skip(mean):
      ...         return mean, jnp.full(32, -1), jnp.zeros(32)
      ...     mean, indices, priorities = jax.lax.cond(replay.can_sample(state, 64), learn, skip, mean)
      ...     return (replay.update_priorities(state, indices, priorities), mean), mean
      >>> @jax.jit
      ... def train(key):
      ...     return jax.lax.scan(step, (replay.init({"r_t": 0.0}), 0.0), jax.random.split(key, 200))[1]
      >>> means = train(jax.random.key(0))
      >>> bool(means[6] == 0), bool(abs(means[-1] - 3) < 0.5)
      (True, True)
    """

    init: Callable[..., Any]
    add: Callable[..., Any]
    add_batch: Callable[..., Any]
    sample: Callable[..., "Sample"]
    can_sample: Callable[..., Array]
    update_priorities: Callable[..., Any]


def replay_of(kind: type, init: Callable[..., Any], *others: Callable[..., Any]) -> Replay:
    """A replay of functions on a state of this type, which raise an error when given anything else."""
    # Partial applications of module-level functions can be pickled; local functions could not.
    names = zip(Replay._fields[1:], others, strict=True)
    with_state = (functools.partial(_with_state, kind, name, function) for name, function in names)
    return Replay(functools.partial(_called, "init", init), *with_state)


def _called(name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a function of a replay; an error about its arguments has the name that the caller knows it by."""
    try:
        return function(*args, **kwargs)
    except TypeError:
        signature = inspect.signature(function)
        try:
            signature.bind(*args, **kwargs)
        except TypeError as wrong:
            raise ArgumentError(f"replay.{name}: {wrong}. It takes {', '.join(signature.parameters)}.") from None
        raise


def _with_state(
    kind: Any, name: str, function: Callable[..., Any], state: Any = None, *args: Any, **kwargs: Any
) -> Any:
    if not all(hasattr(state, field) for field in kind._fields):
        raise OptionError(
            f"replay.{name}: argument `state` is a {type(state).__name__}, expected the {kind.__name__} that `init`, "
            f"or a later call, of this replay returned{advice_for_a_dict(state, kind._fields)}."
        )
    # A state that was saved and loaded may consist of NumPy arrays, which have no `at`.
    if any(isinstance(leaf, (np.ndarray, np.generic)) for leaf in jax.tree.leaves(state)):
        state = jax.tree.map(jnp.asarray, state)
    return _called(name, function, state, *args, **kwargs)


class Sample(NamedTuple):
    """The output of a replay's `sample`: n items and what is needed to learn from them.

    Example:
      >>> import jax
      >>> import rlx
      >>> replay = rlx.replay.uniform(capacity=4)
      >>> state = replay.add(replay.init(0.0), 7.0)
      >>> items, indices, weights = replay.sample(state, jax.random.key(0), n=2)
      >>> items.tolist(), indices.tolist(), weights.tolist()
      ([7.0, 7.0], [0, 0], [1.0, 1.0])
    """

    items: PyTree  # each leaf [n, ...]
    indices: Array  # [n], int32: identify the items for `update_priorities`
    weights: Array  # [n], float32: importance weights for the losses, at most 1


def as_items(function: str, argument: str, given: PyTree, held: PyTree, axes: tuple[str, ...]) -> PyTree:
    """Converts `given` to arrays; the shape of each leaf must be `axes`, then that of an item in `held`.

    Raises:
      ArgumentError, RankError, ShapeError, DTypeError: naming the leaf, what was passed and what `init` was given.
    """
    wanted, structure = jax.tree_util.tree_flatten_with_path(held)
    came, came_structure = jax.tree_util.tree_flatten_with_path(given)
    if came_structure != structure:
        raise ArgumentError(f"{function}: {_other_tree(argument, wanted, came, structure, came_structure)}")
    leaves, lengths = [], {}
    for (path, value), (_, like) in zip(came, wanted, strict=True):
        subject = f"argument `{argument}`" + jax.tree_util.keystr(path)
        leaf = as_leaf(function, subject, value, may_be_abstract=False)
        _check_dtype(function, subject, value, leaf, like)
        _check_shape(function, subject, leaf.shape, axes, like.shape[1:], lengths)
        leaves.append(leaf if leaf.dtype == like.dtype else leaf.astype(like.dtype))
    return jax.tree.unflatten(structure, leaves)


def environments_of(item: PyTree) -> int:
    """The number of environments, at least 1, which is the length of the first axis of all leaves of an item."""
    lengths: dict[str, tuple[int, str]] = {}
    for path, value in jax.tree_util.tree_flatten_with_path(item)[0]:
        subject = f"argument `item`{jax.tree_util.keystr(path)}"
        shape = as_leaf("replay.init", subject, value).shape
        if not shape:
            raise RankError(
                f"replay.init: {subject} has shape [], expected [E, ...] with the steps of E environments.\n"
                "Give it a first axis, even for one environment."
            )
        length, who = lengths.setdefault("E", (shape[0], subject))
        if length != shape[0] or not length:
            more = f"E = {length} from {who}" if length else "E at least 1"
            raise ShapeError(
                f"replay.init: {subject} has shape {_shown(shape)}, expected [E, ...] with {more}.\n"
                "All leaves must have the same number of environments."
            )
    return lengths["E"][0]


def as_priorities(indices: ArrayLike, priorities: ArrayLike) -> tuple[Array, Array]:
    """The arguments of `update_priorities`, checked."""
    indices, priorities = as_arrays(
        "replay.update_priorities",
        indices=(indices, Int[Array, "B"]),
        priorities=(priorities, Real[Array, "B", "in [0, inf)"]),
    )
    return indices, priorities


def as_leaf(function: str, subject: str, value: Any, may_be_abstract: bool = True) -> Any:
    """One leaf of an item as a JAX array, or its stand-in if it may be one."""
    if isinstance(value, jax.Array) or (may_be_abstract and isinstance(value, jax.ShapeDtypeStruct)):
        return value
    try:
        return to_jax(value)
    except (TypeError, ValueError, OverflowError) as error:
        what = f"{value}, too large a number" if isinstance(error, OverflowError) else f"a {type(value).__name__}"
        raise DTypeError(f"{function}: {subject} is {what}, expected an array.\nItems are trees of arrays.") from error


def _other_tree(argument: str, wanted: Any, came: Any, structure: Any, came_structure: Any) -> str:
    paths, came_paths = ([jax.tree_util.keystr(path) or "a single array" for path, _ in x] for x in (wanted, came))
    missing = [path for path in paths if path not in came_paths]
    more = [path for path in came_paths if path not in paths]
    differs = f"lacks {', '.join(missing)}" if missing else ""
    differs += " and " if missing and more else ""
    differs += f"has {', '.join(more)} in addition" if more else ""
    return (
        f"argument `{argument}` has another structure than the item given to `init`"
        + (f": it {differs}.\n" if differs else ".\n")
        + f"It is {came_structure}, expected {structure}."
    )


def _check_dtype(function: str, subject: str, value: Any, leaf: Array, like: Array) -> None:
    # A Python number is weakly typed: 0 is valid for a float.
    weak = isinstance(value, (bool, int, float)) or getattr(value, "weak_type", False)
    fits = jnp.result_type(value, like.dtype) == like.dtype if weak else leaf.dtype == like.dtype
    if not fits:
        raise DTypeError(
            f"{function}: {subject} has dtype {leaf.dtype}, expected {like.dtype} as in the item given to `init`.\n"
            "Convert it, or give `init` an item of this dtype."
        )
    numbers = known(value) if weak and jnp.issubdtype(like.dtype, jnp.integer) else None
    if numbers is not None:
        limits = jnp.iinfo(like.dtype)
        if not np.all((numbers >= limits.min) & (numbers <= limits.max)):
            raise DTypeError(
                f"{function}: {subject} is {shown(value)}, expected a number from {limits.min} to {limits.max}: "
                f"the item given to `init` has dtype {like.dtype}."
            )


def _check_shape(
    function: str, subject: str, shape: tuple[int, ...], axes: tuple[str, ...], item: tuple[int, ...], lengths: dict
) -> None:
    """Checks one leaf's shape; `lengths` contains the known lengths of axes, and the leaves that determined them."""
    expected = _shown((*axes, *item)) + f", where an item is {_shown(item)} as given to `init`"
    if len(shape) != len(axes) + len(item):
        advice = "`add` takes one item, `add_batch` several: their leaves have one axis more."
        raise RankError(f"{function}: {subject} has shape {_shown(shape)}, expected {expected}.\n{advice}")
    if shape[len(axes) :] != item:
        raise ShapeError(
            f"{function}: {subject} has shape {_shown(shape)}, expected {expected}.\nItems share their shapes."
        )
    for axis, length in zip(axes, shape, strict=False):
        known, who = lengths.setdefault(axis, (length, subject))
        if length != known:
            raise ShapeError(
                f"{function}: {subject} has shape {_shown(shape)}, expected {expected}, with {axis} = {known} from "
                f"{who}.\nPass leaves of as many items each."
            )


def _shown(shape: tuple[Any, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
