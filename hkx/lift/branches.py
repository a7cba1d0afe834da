"""Branches: `cond` and `switch`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import jax.core
import jax.numpy as jnp

from hkx.arguments import checked_number
from hkx.base.entries import changed, walk
from hkx.core.frame import Frame, Phase, current_frame, local
from hkx.errors.advice import OF_BRANCHES
from hkx.errors.core import MissingStateError, ShapeMismatchError
from hkx.errors.lift import BranchMismatchError
from hkx.lift.checks import as_arrays, checked_branches, difference, entry_name, same_type
from hkx.lift.crossing import Carry, Crossing, created_between, creating, draw_from, only_looking, snapshot
from hkx.lift.loops import Loop, runs_eagerly, same_output_types

R = TypeVar("R")

_NO_OPERAND = object()


def cond(
    pred: Any,
    true_fun: Callable[..., R],
    false_fun: Callable[..., R],
    *operands: Any,
    operand: Any = _NO_OPERAND,
    true_operand: Any = _NO_OPERAND,
    false_operand: Any = _NO_OPERAND,
) -> R:
    """`jax.lax.cond` whose branches may create modules, ask for parameters, set state and draw keys.

    Computes `true_fun(*operands) if pred else false_fun(*operands)`. Afterwards, state and keys are as the branch that
    was taken left them. During `init`, both branches create their parameters, `true_fun` first. Modules in both are
    numbered from the same start, as in the branches of a Python `if`: parameters of equal names are shared. For a
    branch with parameters of its own, make its modules before the `cond`, or give them a `name`.

    Args:
      pred: a bool or a number of shape [].
      true_fun: a function of the operands.
      false_fun: a function of the operands that returns the same structure, shapes and dtypes.
      *operands: the arguments of the branch.
      operand: one operand, by name.
      true_operand: the argument of `true_fun` only, used with `false_operand`, as in older JAX programs.
      false_operand: the argument of `false_fun` only.

    Returns:
      The value of the branch.

    Raises:
      ValueError: if operands are given in two of these ways, or only one branch is given its own operand.
      BranchMismatchError: if results or states after the branches have different structures, shapes or dtypes.
      StateInLoopError: if a state changes its shape or dtype in all of them, or is created in `apply`.

    Outside of a transformed function it is `jax.lax.cond`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     return hkx.cond(x.sum() > 0, lambda x: hkx.Linear(3)(x), lambda x: hkx.nets.MLP([8, 3])(x), x)
      >>> model = hkx.transform(f)
      >>> params = model.init(jax.random.key(0), jnp.ones(2))
      >>> sorted(params), model.apply(params, None, jnp.ones(2)).shape
      (['linear', 'mlp/~/linear_0', 'mlp/~/linear_1'], (3,))
    """
    if true_operand is not _NO_OPERAND or false_operand is not _NO_OPERAND:
        if operands or operand is not _NO_OPERAND or true_operand is _NO_OPERAND or false_operand is _NO_OPERAND:
            raise ValueError(
                "`hkx.cond` takes `true_operand=` and `false_operand=` only together, and then no other operands."
            )
        operands, true_fun, false_fun = (true_operand, false_operand), _first(true_fun), _second(false_fun)
    elif not callable(true_fun) and len(operands) == 2 and callable(operands[1]) and callable(false_fun):
        # the older form (pred, true_operand, true_fun, false_operand, false_fun)
        (on_true, on_false), (true_branch, false_branch) = (true_fun, operands[0]), (false_fun, operands[1])
        operands, true_fun, false_fun = (on_true, on_false), _first(true_branch), _second(false_branch)
    operands = _operands("hkx.cond", operands, operand)
    if not local.frames:
        return jax.lax.cond(pred, true_fun, false_fun, *operands)
    if isinstance(checked_number(pred, "pred"), (bool, int, float)):
        pred = bool(pred)
    elif jnp.result_type(pred) != jnp.bool_:
        pred = pred != 0

    def select(branches: Sequence[Callable[..., Any]], *args: Any) -> Any:
        return jax.lax.cond(pred, *branches, *args)

    taken = int(not pred) if runs_eagerly() and not isinstance(pred, jax.core.Tracer) else None
    return _branch("hkx.cond", pred, select, taken, (true_fun, false_fun), operands)


def _operands(name: str, operands: tuple[Any, ...], operand: Any) -> tuple[Any, ...]:
    """The operands, passed by position or by name."""
    if operand is _NO_OPERAND:
        return operands
    if operands:
        raise ValueError(f"With `operand=`, `{name}` cannot take operands that you pass positionally too.")
    return (operand,)


def _first(f: Callable[..., R]) -> Callable[..., R]:
    return lambda first, second: f(first)


def _second(f: Callable[..., R]) -> Callable[..., R]:
    return lambda first, second: f(second)


def switch(index: Any, branches: Sequence[Callable[..., R]], *operands: Any, operand: Any = _NO_OPERAND) -> R:
    """`jax.lax.switch` whose branches may create modules, ask for parameters, set state and draw keys.

    Computes `branches[clip(index, 0, len(branches) - 1)](*operands)`. Afterwards, state and keys are as the branch that
    was taken left them. During `init`, all branches create their parameters, in order. They share parameters in the
    same cases as the branches of `hkx.cond`.

    Args:
      index: an integer of shape []. If it is out of range, the nearest branch is taken.
      branches: functions of the operands that return the same structure, shapes and dtypes.
      *operands: the arguments of the branch.
      operand: one operand, by name.

    Returns:
      The value of the branch.

    Raises:
      ValueError: if there are no branches.
      BranchMismatchError: if results or states after the branches have different structures, shapes or dtypes.
      StateInLoopError: if a state changes its shape or dtype in all of them, or is created in `apply`.

    Outside of a transformed function it is `jax.lax.switch`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(i, x):
      ...     experts = [hkx.Linear(3, name=f"expert_{n}") for n in range(4)]
      ...     return hkx.switch(i, experts, x)
      >>> model = hkx.transform(f)
      >>> params = model.init(jax.random.key(0), 0, jnp.ones(2))
      >>> len(params), model.apply(params, None, 3, jnp.ones(2)).shape
      (4, (3,))
    """
    operands = _operands("hkx.switch", operands, operand)
    if not local.frames:
        return jax.lax.switch(index, branches, *operands)
    branches = checked_branches(branches)
    if not branches:
        raise ValueError("Empty branch sequence: `hkx.switch` needs at least one branch.")

    def select(branches: Sequence[Callable[..., Any]], *args: Any) -> Any:
        return jax.lax.switch(index, branches, *args)

    taken = None
    if runs_eagerly() and not isinstance(index, jax.core.Tracer):
        taken = min(max(int(index), 0), len(branches) - 1)
    return _branch("hkx.switch", index, select, taken, branches, operands)


def _create(name: str, frame: Frame, crossings: Sequence[Crossing[..., Any]], operands: Any) -> Any:
    """Creates what the branches need, in order. Returns the keys to continue with, if anything was created."""
    before = snapshot(frame)
    creators: dict[tuple[str, str], int] = {}  # the branch that created each state
    for i, crossing in enumerate(crossings):
        held = snapshot(frame)
        with _explained(i):
            if creators:
                _check_states(name, i, crossing, operands, creators, before, held)
            crossing.visit(operands)
        creators |= {(bundle, entry): i for bundle, entry, _ in walk(changed(held.initial_state, frame.initial_state))}
        if not created_between(held, snapshot(frame)):
            draw_from(frame, held.rng)  # branches that share everything draw the same keys, as in dm-haiku
    after = snapshot(frame)
    draw_from(frame, before.rng)
    return after.rng if created_between(before, after) else None


def _check_states(
    name: str, i: int, branch: Crossing[..., Any], operands: Any, creators: Any, before: Carry, held: Carry
) -> None:
    """Raises an error if a branch, run on its own, would create a state of another type than an earlier branch did."""
    alone = held._replace(state=before.state, initial_state=before.initial_state)
    try:
        with only_looking():
            created = jax.eval_shape(lambda *args: branch.run(alone, args)[1].initial_state, *operands)
    except MissingStateError:  # it relies on the earlier branch to create the state
        return
    for (bundle, entry), creator in creators.items():
        if entry in created.get(bundle, ()):
            first, second = ({bundle: {entry: tree[bundle][entry]}} for tree in (held.initial_state, created))
            labels = f"branch {creator} creates", f"branch {i} creates"
            problem = difference(first, second, entry_name, labels, same_type)
            if problem:
                raise BranchMismatchError(name, i, problem, creator, states=True)


@contextlib.contextmanager
def _explained(branch: int) -> Iterator[None]:
    """Says, where a branch asks for another shape than an earlier one created, what to write."""
    try:
        yield
    except ShapeMismatchError as error:
        if branch:
            error.add_note(OF_BRANCHES)
        raise


def _branch(
    name: str, choice: Any, select: Any, taken: int | None, branches: Sequence[Callable[..., Any]], operands: Any
) -> Any:
    """The result of the branch that `select` takes by `choice`. `taken` is its index if JAX calls only that one.

    Names are counted anew in every branch, so branches share what has the same name.
    """
    frame = current_frame(name)
    operands = as_arrays(operands)
    firsts = [next(i for i, other in enumerate(branches) if other is branch) for branch in branches]
    distinct = sorted(set(firsts))  # a function that is given twice counts as one branch, as in JAX
    position = [distinct.index(n) for n in firsts]
    crossings: list[Crossing[..., Any]] = [Crossing(branches[n], name, in_loop=True) for n in distinct]
    keys = _create(name, frame, crossings, operands) if creating(frame) else None
    loop = Loop(frame, name, Phase.CREATED)
    loop.vary_with(choice)
    outs: dict[int, Any] = {}
    states: dict[int, Any] = {}

    def pure_branch(i: int) -> Callable[..., Any]:
        def run(moving: Any, *args: Any) -> Any:
            with _explained(i):
                result = loop.step(crossings[i], moving, *args)
            outs[i], states[i] = jax.tree.map(_spec, (result[0], result[1][0]))
            first = 0 if i > 0 else None  # what is no array is not like itself
            problem = difference(outs[0], outs[i], names=("branch 0 returns", f"branch {i} returns"), alike=same_type)
            if problem:
                raise BranchMismatchError(name, i, problem, first)
            problem = difference(states[0], states[i], entry_name, ("branch 0 leaves", f"branch {i} leaves"), same_type)
            if problem:
                raise BranchMismatchError(name, i, problem, first, states=True)
            if len(states) == len(crossings):
                loop.check(jax.tree.map(_spec, moving[0]), states[i])
            return result

        return run

    pure_branches = [pure_branch(i) for i in range(len(crossings))]
    if taken is not None:  # the others are traced for the names that they take
        runs = [
            branch(loop.start, *operands) if i == position[taken] else jax.eval_shape(branch, loop.start, *operands)
            for i, branch in enumerate(pure_branches)
        ]
        out, moving = runs[position[taken]]
    else:
        pure_branches = same_output_types(pure_branches, loop.start, *operands)
        out, moving = select([pure_branches[i] for i in position], loop.start, *operands)
    loop.finish(moving, *crossings)
    draw_from(frame, keys)
    return out


def _spec(x: Any) -> Any:
    """The types that JAX compares between branches, without tracers."""
    try:
        aval = jax.typeof(x)
    except TypeError:
        return x
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))
