"""Branches: cond and switch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from hkx.core.errors import MissingParameterError
from hkx.core.frame import Frame, current_frame, local
from hkx.lift.carried import Carried, runs_eagerly
from hkx.lift.checks import as_arrays, difference
from hkx.lift.errors import BranchMismatchError
from hkx.lift.purify import Pure, creating, restore_state, snapshot

R = TypeVar("R")

_NO_OPERAND = object()


def cond(
    pred: Any, true_fun: Callable[..., R], false_fun: Callable[..., R], *operands: Any, operand: Any = _NO_OPERAND
) -> R:
    """`jax.lax.cond` whose branches may make modules, ask for parameters, set state and draw keys.

    Computes `true_fun(*operands) if pred else false_fun(*operands)`. State and keys are left as the branch that was
    taken leaves them. During `init` both branches create their parameters, `true_fun` first. Where both ask for the
    same parameters, names and shapes alike, they share them, as the branches of a Python `if` would; otherwise each has
    its own, with the names that they would have if both were called in a row.

    Args:
      pred: a bool or a number of shape [].
      true_fun: a function of the operands.
      false_fun: a function of the operands that returns the same structure, shapes and dtypes.
      *operands: the arguments of the branch.
      operand: one operand, by name.

    Returns:
      What the branch returns.

    Raises:
      BranchMismatchError: if the branches return different structures, shapes or dtypes.
      StateInLoopError: if a state changes its shape or dtype, or is created in `apply`.

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
    if operand is not _NO_OPERAND:
        if operands:
            raise ValueError("With `operand=`, `hkx.cond` cannot take operands that you pass positionally too.")
        operands = (operand,)
    elif not callable(true_fun) and len(operands) == 2 and callable(operands[1]) and callable(false_fun):
        # the older form (pred, true_operand, true_fun, false_operand, false_fun)
        (on_true, on_false), (true_branch, false_branch) = (true_fun, operands[0]), (false_fun, operands[1])
        operands, true_fun, false_fun = (on_true, on_false), _first(true_branch), _second(false_branch)
    if not local.frames:
        return jax.lax.cond(pred, true_fun, false_fun, *operands)
    if jnp.ndim(pred) != 0:
        raise TypeError(f"The predicate of `hkx.cond` must be a scalar, got shape {jnp.shape(pred)}.")
    if isinstance(pred, (bool, int, float)):
        pred = bool(pred)
    elif jnp.result_type(pred) != jnp.bool_:
        pred = pred != 0

    def select(*branches: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: jax.lax.cond(pred, *branches, *args)

    return _branch("hkx.cond", select, (true_fun, false_fun), operands)


def _first(f: Callable[..., R]) -> Callable[..., R]:
    return lambda first, second: f(first)


def _second(f: Callable[..., R]) -> Callable[..., R]:
    return lambda first, second: f(second)


def switch(index: Any, branches: Sequence[Callable[..., R]], *operands: Any, operand: Any = _NO_OPERAND) -> R:
    """`jax.lax.switch` whose branches may make modules, ask for parameters, set state and draw keys.

    Computes `branches[clip(index, 0, len(branches) - 1)](*operands)`. State and keys are left as the branch that was
    taken leaves them. During `init` all branches create their parameters, in order; which ones share them is as for
    `hkx.cond`.

    Args:
      index: an integer of shape []; out of range, the nearest branch is taken.
      branches: functions of the operands that return the same structure, shapes and dtypes.
      *operands: the arguments of the branch.
      operand: one operand, by name.

    Returns:
      What the branch returns.

    Raises:
      ValueError: if there are no branches.
      BranchMismatchError: if the branches return different structures, shapes or dtypes.
      StateInLoopError: if a state changes its shape or dtype, or is created in `apply`.

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
    if operand is not _NO_OPERAND:
        if operands:
            raise ValueError("With `operand=`, `hkx.switch` cannot take operands that you pass positionally too.")
        operands = (operand,)
    if not local.frames:
        return jax.lax.switch(index, branches, *operands)
    branches = tuple(branches)
    if not branches:
        raise ValueError("Empty branch sequence: `hkx.switch` needs at least one branch.")
    if jnp.ndim(index) != 0 or not jnp.issubdtype(jnp.result_type(index), jnp.integer):
        raise TypeError(
            f"The index of `hkx.switch` must be an integer of shape [], got {jnp.result_type(index)} of shape "
            f"{jnp.shape(index)}."
        )

    def select(*branches: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: jax.lax.switch(index, branches, *args)

    return _branch("hkx.switch", select, branches, operands)


class _Unshared(BaseException):
    """A branch asks for what no branch before it asks for."""


class _Names:
    """What the modules of each branch are called.

    A branch whose names start where those of the first do, and which then asks for exactly the parameters and state,
    with their shapes, that an earlier branch asks for, shares them. Any other goes on from the names of those before.
    """

    def __init__(self, frame: Frame, name: str, branches: Sequence[Callable[..., Any]]):
        self._frame = frame
        self._name = name
        self._branches = branches
        self._asked: list[set[tuple[Any, ...]]] = []
        self._starts: dict[int, Pure[..., Any] | None] = {}
        self._last: Pure[..., Any] | None = None

    def call(self, i: int, attempt: Callable[[Pure[..., Any]], R], then: Callable[[Pure[..., Any]], R]) -> R:
        """What `then` returns for branch `i`; for one that shares, what `attempt` does, which may be abandoned."""
        if i in self._starts:
            return then(Pure(self._branches[i], self._name, after=self._starts[i]))
        if self._last is not None and self._last.took_names:
            asked: set[tuple[Any, ...]] = set()
            draws = local.draws
            known = set[tuple[Any, ...]]().union(*self._asked)

            def check(request: tuple[Any, ...]) -> None:
                if request not in known:
                    raise _Unshared
                asked.add(request)

            pure: Pure[..., Any] = Pure(self._branches[i], self._name)
            pure.tell(check)
            try:
                out = attempt(pure)
            except _Unshared:
                pass
            else:
                if asked in self._asked:
                    self._starts[i] = None
                    return out
            local.draws = draws
        return self._go_on(i, then)

    def _go_on(self, i: int, then: Callable[[Pure[..., Any]], R]) -> R:
        asked: set[tuple[Any, ...]] = set()

        def note(request: tuple[Any, ...]) -> None:
            asked.add(request)
            if self._frame.asked is not None:
                self._frame.asked(request)

        pure: Pure[..., Any] = Pure(self._branches[i], self._name, after=self._last)
        pure.tell(note)
        out = then(pure)
        self._starts[i], self._last = self._last, pure
        self._asked.append(asked)
        return out

    def from_the_start(self, i: int, then: Callable[[Pure[..., Any]], R]) -> R:
        """Calls a branch as if it were the first."""
        self._starts[i] = None
        return then(Pure(self._branches[i], self._name))

    def commit(self) -> None:
        """Counts the names of all branches as taken."""
        assert self._last is not None
        self._last.commit()


def _visit_all(name: str, frame: Frame, branches: Sequence[Callable[..., Any]], operands: Any) -> Any:
    """Creates what the branches need, one after the other; the keys to go on with if anything was created."""
    before = snapshot(frame)
    names = _Names(frame, name, branches)

    def attempt(pure: Pure[..., Any]) -> None:
        held = snapshot(frame)._replace(rng=before.rng)
        jax.eval_shape(lambda *args: [pure.run(held, args, settled=True), None][1], *operands)

    for i in range(len(branches)):
        names.call(i, attempt, lambda pure: pure.visit(*operands))
        restore_state(frame, before.state)
    after = snapshot(frame)
    created = any(_size(a) != _size(b) for a, b in zip(after[:3], before[:3], strict=True))
    if before.rng is not None:
        frame.rngs[-1].replace_internal_state(before.rng)
    return after.rng if created else None


def _size(tree: Any) -> int:
    return sum(map(len, tree.values()))


def _branch(name: str, select: Any, branches: Sequence[Callable[..., Any]], operands: Any) -> Any:
    frame = current_frame(name)
    operands = as_arrays(operands)
    numbers = [next(i for i, other in enumerate(branches) if other is branch) for branch in branches]
    distinct = sorted(set(numbers))  # a function that is given twice is one branch, as it is for JAX
    branches = [branches[n] for n in distinct]
    keys = _visit_all(name, frame, branches, operands) if creating(frame) else None
    carried = Carried(frame, name, looping=False)
    outs: dict[int, Any] = {}
    names = _Names(frame, name, branches)

    def pure_branch(i: int) -> Callable[..., Any]:
        def run(moving: Any, *args: Any) -> Any:
            def step(pure: Pure[..., Any]) -> Any:
                return carried.step(pure, moving, *args)

            try:
                result = names.call(i, step, step)
            except MissingParameterError:
                # `init` did not come here: a program written for Haiku made the parameters otherwise, and Haiku starts
                # the names of all branches from the same place.
                if i == 0 or frame.running_init:
                    raise
                result = names.from_the_start(i, step)
            outs[i] = jax.tree.map(_spec, result[0])
            problem = difference(outs[0], outs[i], names=("branch 0 returns", f"branch {i} returns"))
            if problem:
                raise BranchMismatchError(name, i, problem)
            return result

        return run

    pure_branches = [pure_branch(i) for i in range(len(branches))]
    if runs_eagerly():  # JAX would call only the branch that is taken; the others have names too
        for branch in pure_branches:
            jax.eval_shape(branch, carried.start, *operands)
    out, moving = select(*[pure_branches[distinct.index(n)] for n in numbers])(carried.start, *operands)
    carried.finish(moving)
    if keys is not None:
        frame.rngs[-1].replace_internal_state(keys)
    names.commit()
    return out


def _spec(x: Any) -> Any:
    """What JAX compares between branches; holds no tracer."""
    try:
        aval = jax.typeof(x)
    except TypeError:
        return x
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))
